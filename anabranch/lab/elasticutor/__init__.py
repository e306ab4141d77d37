"""Elasticutor's experiments."""
