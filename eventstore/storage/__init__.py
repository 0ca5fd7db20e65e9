"""The database: how it is opened, what its tables are, how a batch is encoded."""
