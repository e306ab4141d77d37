"""Enorm's experiments."""
