"""The schema: how a store comes to have it, and samples of every schema that users have."""
