"""Reaching into running jobs, through a real daemon."""
