"""Read-only questions to a store."""
