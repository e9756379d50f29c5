"""The HTML report of a simulation: one self-contained file with tables and SVG charts.

In: the description of the simulation (`SimulationInfo`) and one `SimulationRun` per policy.
Out: HTML text (`html.render`), which `writer` writes atomically.

Read `html` first. `charts` and `gantt` draw the charts, `bars` computes the bars of the Gantt
chart, and `axis` the scales.
"""
