"""Estimates about jobs: speed, used time, remaining time, and start and finish times.

Measured epoch times enter `speed_model`; epoch times for any number of workers leave it.
`service_time` and `remaining_time` compute a job's used and remaining time at a moment. `forecast`
runs the real kernel in virtual time to predict when jobs start and finish.

Read `speed_model.py` first, then `forecast.py`.
"""
