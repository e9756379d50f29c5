"""Measures that are printed, not asserted: `python -m benchmarks.<name>` (see README.md)."""
