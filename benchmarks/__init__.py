"""Benchmarks, run as `python -m benchmarks.<name>`; README.md lists them.

A benchmark prints a page of results and writes it to `docs/results`. It asserts nothing, because
results depend on the machine. `support` holds what several benchmarks share.
"""
