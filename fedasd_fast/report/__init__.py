"""Reports about runs: HTML pages, plots, tables of results."""
