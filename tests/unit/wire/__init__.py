"""Message shapes: what they hold, and what they refuse."""
