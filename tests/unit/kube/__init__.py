"""Unit tests of the Kubernetes API client."""
