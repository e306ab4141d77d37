"""Aggregates: the functions that users call, what is stored, how it merges, and the results."""
