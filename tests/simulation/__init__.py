"""Seeded traces with injected faults on the production kernel; a failure prints its seed."""
