"""Figures and tables of runs."""
