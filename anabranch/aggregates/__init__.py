"""Everything about aggregates: what users call, what is kept, how it merges, and the results."""
