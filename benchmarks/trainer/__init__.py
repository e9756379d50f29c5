"""Measures the cost of `rota_trainer`: `python -m benchmarks.trainer`.

`steps` measures a training loop, `load` a daemon with reporting workers, `store` the stored size.
"""
