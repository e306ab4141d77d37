"""Users' functions without state: rows in, rows out."""
