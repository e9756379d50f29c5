"""Engines run workers somewhere. They report and never decide."""
