"""The virtual engine: an engine in virtual time, without processes.

In: the same commands as for a real engine, each with the current virtual time. Out: the events
that a real engine would report, each at its computed time. The simulator, forecasts and tests use
it. The conformance suite holds it to the same rules as the real engines.

Read `engine.py` first; `run.py` is the model of one attempt and `forecast.py` builds an engine
from the present state of the cluster.
"""
