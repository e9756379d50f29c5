"""The scheduler as pure values: no I/O, no clock, no randomness, no threads, no logging."""
