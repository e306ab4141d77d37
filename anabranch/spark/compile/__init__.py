"""A plan as one Spark job."""
