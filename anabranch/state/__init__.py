"""Shards on one host: versions, undo, deltas, snapshots. No Spark."""
