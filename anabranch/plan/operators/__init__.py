"""One module per kind of operator: what it keeps, what it emits, and how it describes itself."""
