"""Measures how long training pauses when its size changes: `python -m benchmarks.elastic`.

`ways` lists the compared methods, `measurement` runs one of them under a daemon, and `journal`
reads the times that the training scripts write. The `train_*` modules are these scripts.
"""
