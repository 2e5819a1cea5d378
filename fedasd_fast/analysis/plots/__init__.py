"""Plots of the analyses, one module each.

They take results as objects or as the content of RUN/analysis/NAME.json.
"""
