"""`anabranch bench fusion`: chained aggregations."""
