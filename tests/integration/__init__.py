"""Real files and real processes."""
