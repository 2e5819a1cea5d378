"""Benchmarks: python -m benchmarks.loss, then python -m benchmarks.report."""
