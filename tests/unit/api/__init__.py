"""Unit tests of the HTTP API."""
