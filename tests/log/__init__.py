"""The log: append, read, verify, numbers of chunks."""
