"""Helpers for the whole package: files, formats, tables, plots, progress, randomness."""
