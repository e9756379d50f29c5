"""Tests of the client library without a daemon."""
