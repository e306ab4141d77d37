"""Compiles a plan into one DataFrame job per step, and runs each step exactly once."""
