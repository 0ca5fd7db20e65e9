"""The log itself: appended to, read, verified."""
