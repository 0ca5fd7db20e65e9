"""Recorded engines: what a scheduler asked of its tracker, and how that is run again."""
