"""Attacks by other users of the machine. Each test was red before its defence existed."""
