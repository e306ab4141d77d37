"""Runs users' functions without state: rows in, rows out."""
