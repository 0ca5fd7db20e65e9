"""What is true of chunks, places and events, whatever stores them: no SQL, no vLLM, no terminal."""
