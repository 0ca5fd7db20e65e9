"""What is true of chunks, places and events, whatever stores them."""
