"""Analyses of a run at its last checkpoint: flatness, gradient dissimilarity, forgetting, drift, cost, weights."""
