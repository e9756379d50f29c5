"""End-to-end tests with real processes: a daemon, its supervisors and user programs."""
