"""Stores keep what must outlive the process: rows of current state, and their story."""
