"""Imported inside training jobs: progress, safe points, checkpoints. Runs alone without rota."""

from rota_trainer.run import Run
from rota_trainer.starting import start
from rota_trainer.stops import Stopped
from rota_trainer.version import VERSION

__all__ = ["Run", "Stopped", "__version__", "start"]
__version__ = VERSION
