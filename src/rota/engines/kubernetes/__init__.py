"""Workers as pods of a Kubernetes cluster."""
