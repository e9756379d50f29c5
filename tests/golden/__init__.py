"""Exact results and exact output, as inline snapshots."""
