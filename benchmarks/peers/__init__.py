"""Other schedulers of one box, each driven through the same protocol: see `base`."""
