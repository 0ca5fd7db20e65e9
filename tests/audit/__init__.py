"""SQL and the commands that audit a store."""
