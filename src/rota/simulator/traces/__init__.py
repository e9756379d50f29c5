"""Readers of workload traces, one file for each format; `load` chooses among them."""

from __future__ import annotations

from rota.simulator.traces.open import load

__all__ = ["load"]
