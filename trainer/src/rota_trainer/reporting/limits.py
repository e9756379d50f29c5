"""Limits of one report: the daemon ignores what exceeds them, and the trainer does not send it.

A module of its own, because `import rota_trainer` must import little.
"""

MOST_RECORDS = 64
"""Records of steps, and of epochs, in one report; short steps share a record."""
MOST_METRICS = 64
LONGEST_NAME = 64
MOST_EPOCHS = 1e12
"""Above this number of epochs, sums and quotients lose their precision."""
LONGEST_S = 366 * 86400.0
"""The longest duration: of an epoch, a step, a start, a save or a load."""
