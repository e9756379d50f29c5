"""How much one report may hold."""

MOST_RECORDS = 64
"""Records of steps or epochs in one report; faster steps share a record."""
MOST_METRICS = 64
LONGEST_NAME = 64
