"""Configuration: settings of the daemon and of submits, and the paths of rota's files.

In: TOML files, `ROTA_...` variables and flags. Out: `DaemonSettings`, `JobDefaults` and the values
for a submit, each with its origin. Read `keys.py` and `schema.py` first: they define every key.
`load.py` merges the sources, `parsers.py` parses single values, `paths.py` locates directories.
"""
