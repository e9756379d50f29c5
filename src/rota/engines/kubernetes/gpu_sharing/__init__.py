"""GPUs that several workers share.

A placeholder pod requests the whole GPU, so that the cluster gives it to no one else, and reports
the GPU's name; the sharing workers get this name and request no GPU. `holders` creates and deletes
placeholder pods, `placeholder_pod` builds them.

Read `holders` first.
"""
