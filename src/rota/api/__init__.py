"""HTTP under /v1: thin routes around the desk, who is asking, and bounds on what is asked."""
