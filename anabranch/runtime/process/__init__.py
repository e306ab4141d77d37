"""Runs users' classes with state per key: rows in, results and changed cells out."""
