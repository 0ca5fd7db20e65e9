"""Everything of the tracker that knows vLLM: nothing outside this room imports it."""
