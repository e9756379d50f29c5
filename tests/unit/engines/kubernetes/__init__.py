"""Unit tests of the Kubernetes engine, without a cluster: pure parts, and a scripted server."""
