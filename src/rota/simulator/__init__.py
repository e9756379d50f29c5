"""Runs recorded or made-up workloads through the production scheduler, in virtual time."""
