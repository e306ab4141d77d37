"""The only package that imports pyspark: compiles a plan into one DataFrame job per step and runs it exactly once."""
