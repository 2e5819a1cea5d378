"""What a run keeps on disk: its directory, checkpoints, and the clients' records."""
