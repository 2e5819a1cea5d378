"""Plots of the analyses, one module each."""
