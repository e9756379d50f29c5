"""Engines, as far as no process is needed."""
