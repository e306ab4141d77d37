"""Scaling policies, each beside its paper."""
