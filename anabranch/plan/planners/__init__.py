"""Planners: which operators share a component."""
