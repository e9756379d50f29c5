"""How long a test waits for an event that has to happen."""

PATIENCE_S = 180.0
"""A sound test waits a small part of this. The limit is for a busy machine, and ends a test that
would wait for ever."""
