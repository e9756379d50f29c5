"""Trainings whose size is changed while they run, and what `benchmarks.elastic` reads of them."""
