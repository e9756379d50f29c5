"""Policies: each file sizes jobs in one way. `registry.py` finds them by name."""
