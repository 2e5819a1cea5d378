"""Flower app: FedAvg with and without Adaptive Self-Distillation on scikit-learn's digits."""
