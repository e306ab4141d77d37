"""Placement: which host gets which work. Pure functions of values."""
