"""Exact results and exact words, as inline snapshots; changing one needs a reason."""
