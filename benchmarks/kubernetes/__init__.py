"""Measures rota on a cluster of simulated nodes: `python -m benchmarks.kubernetes`.

`cluster` starts a real control plane with KWOK nodes, `daemon` starts rota, `measurements` submits
jobs and takes the times, `pod_watch` observes pods independently of rota.
"""
