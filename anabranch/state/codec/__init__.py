"""The bytes of state: what a delta and a snapshot look like."""
