"""DABS-Storm's experiments."""
