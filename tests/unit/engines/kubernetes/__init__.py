"""The Kubernetes engine without a cluster: what is pure about it, and a server that is scripted."""
