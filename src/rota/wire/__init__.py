"""Message shapes that the daemon and its clients share. Standard library only."""
