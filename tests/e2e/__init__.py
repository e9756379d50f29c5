"""The whole of it on real processes: a daemon, its keepers, and what users run."""
