"""Decoded state: arrays in the memory of a worker."""
