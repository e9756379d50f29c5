"""Log files: worker output on disk, in one format for all engines.

`writer.py` takes the raw output of one worker and writes bounded, rotated files with time stamps.
`reader.py` returns the stored output as chunks and can follow a log that is still growing.
Read `writer.py` first: its docstring describes the files.

Supervisors import `writer.py`, so this file has no imports and `writer.py` imports the standard
library only (ADR 0012).
"""
