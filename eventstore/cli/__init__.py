"""The command line: parses and renders; what a command does lives in its room."""
