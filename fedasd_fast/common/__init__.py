"""What every part of the package uses and that knows nothing of federated learning."""
