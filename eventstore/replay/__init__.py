"""A recorded stream goes out again."""
