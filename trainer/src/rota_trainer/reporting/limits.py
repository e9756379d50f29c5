"""Limits of one report. A module of its own, because `import rota_trainer` must import little."""

MOST_RECORDS = 64
"""Records of steps, and of epochs, in one report; short steps share a record."""
MOST_METRICS = 64
LONGEST_NAME = 64
