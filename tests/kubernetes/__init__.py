"""What runs on a real Kubernetes cluster."""
