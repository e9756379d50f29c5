"""The training library: a training script imports it to report progress, stop and resume.

In: the script's epochs, steps, metrics and checkpoint functions, and the environment variables
that rota sets for a worker. Out: progress reports to the daemon, checkpoints on disk, and the
exception `Stopped` when rota needs the GPUs. Outside of rota the same script runs alone.

Read `run` first. The library has no dependency, and no error of its own reaches the training.
"""

from rota_trainer.exceptions import Stopped
from rota_trainer.run import Run, start
from rota_trainer.version import VERSION

__all__ = ["Run", "Stopped", "__version__", "start"]
__version__ = VERSION
