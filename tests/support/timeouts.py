"""How long a test waits for what has to come."""

PATIENCE_S = 180.0
"""Nobody waits so long for a thing that works: it is for a machine that has much else to do, and
ends a test that would wait for ever."""
