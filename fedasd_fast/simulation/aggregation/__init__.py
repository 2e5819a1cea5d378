"""Sums over clients whose bits do not depend on the order of the clients."""
