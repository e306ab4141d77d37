"""Aggregates: what users call, what is kept of rows, how partials merge, and how results are made of them."""
