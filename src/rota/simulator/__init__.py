"""Traces in, figures and reports out: the production kernel over virtual time."""
