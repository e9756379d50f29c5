"""The progress of a training run: what it did, and how far it is.

In: epochs, steps and metrics of a script (`tally`), or output lines and CSV rows of a program
(`patterns`, `csv_file`, `observed`), and measured memory (`memory`). Out: the fields of a progress
report, and the `Position` that a checkpoint stores. Read `tally` first. Imports no framework.
"""
