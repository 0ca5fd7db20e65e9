"""The tracker: memory, publishing, and what becomes of both across a crash."""
