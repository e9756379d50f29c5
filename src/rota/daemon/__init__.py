"""The shell around the scheduler on a real machine: facts in, commands out."""
