"""Compiles a plan into one Spark job."""
