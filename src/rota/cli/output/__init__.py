"""Everything that is written to the terminal is written here: tables, JSON, lines, progress."""
