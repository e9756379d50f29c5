"""Kernel, placement and policies: scenario tables in the domain's words; no network, no sleep."""
