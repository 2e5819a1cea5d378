"""Utilities that know nothing of federated learning: schema, random numbers, formatting, plotting."""
