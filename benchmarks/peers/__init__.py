"""This simulator beside others: python -m benchmarks.peers W1 (first: python -m benchmarks.peers.setup)."""
