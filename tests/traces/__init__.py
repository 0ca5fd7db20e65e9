"""The recorded engines, whole and changed, through the command line as a user runs it."""
