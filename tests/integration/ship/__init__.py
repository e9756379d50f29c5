"""Shipping with real files, crashes and full disks."""
