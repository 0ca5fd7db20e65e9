"""A process opens a stream: the new epoch, what it ends, what it finds."""
