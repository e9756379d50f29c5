"""Code that several benchmarks share.

`markdown` writes the pages of `docs/results`, `flags` has the common flags, `simulation` runs a
trace, and `sandbox` runs daemons in a temporary folder.
"""
