"""Imported inside training jobs: progress, safe points, checkpoints. Runs alone without rota."""

from rota_trainer.run import Run, start
from rota_trainer.stops import Stopped

__all__ = ["Run", "Stopped", "start"]
__version__ = "0.1.0"
