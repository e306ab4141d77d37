"""What runs in a Python worker. Nothing here imports pyspark."""
