"""What users call: topologies, streams, runs."""
