"""This simulator compared with others: python -m benchmarks.peers W1 (first: python -m benchmarks.peers.setup)."""
