"""Unit tests of the operator."""
