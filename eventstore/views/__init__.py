"""What the log adds up to: residency, lifecycle, and how both are rebuilt."""
