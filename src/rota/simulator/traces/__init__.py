"""Readers of workload traces, one module per format.

In: the name of a trace as the user types it: a file, a built-in workload or a generator.
Out: a `rota.simulator.workload.Workload`, or an `InputError` with file, row and field.

Read `loader` first: `load` selects the reader by the name and the header of the file. `csv_table`
reads the rows for all CSV formats.
"""

from __future__ import annotations

from rota.simulator.traces.loader import load

__all__ = ["load"]
