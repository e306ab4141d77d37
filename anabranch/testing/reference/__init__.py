"""Results computed a second time by independent code, mostly DuckDB."""
