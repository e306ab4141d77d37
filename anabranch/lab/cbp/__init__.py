"""CBP's experiments."""
