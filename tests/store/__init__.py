"""The store on its own: appends, transactions, processes, faults of the disk."""
