"""Checkpoints on disk that are complete or absent, whatever crashes.

In: a `save` or `load` function of the script, and a position. Out: a folder with the script's
files and a manifest, renamed into place after everything is flushed; or the newest valid
checkpoint of the same job and code. Read `checkpointer` first, then `store` and `manifest`.
"""
