"""Online shuffle grouping (DABS-Storm, section 5): which task gets a row, by estimated cost."""
