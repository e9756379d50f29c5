"""Adds rota-trainer to the dependencies when the distribution `rota` is built."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

TRAINER = "rota-trainer"


class TrainerDependency(MetadataHookInterface):
    """In a clone the dependency is the folder `trainer`, so that `pip install .` needs no index for
    it. In a source distribution, and where the trainer is installed already, it is the name."""

    def update(self, metadata: dict[str, Any]) -> None:
        folder = Path(self.root) / "trainer"
        is_clone = folder.is_dir() and not _is_installed(TRAINER)
        trainer = f"{TRAINER} @ {folder.as_uri()}" if is_clone else TRAINER
        metadata["dependencies"] = [*self.config["dependencies"], trainer]


def _is_installed(name: str) -> bool:
    try:
        return bool(version(name))
    except PackageNotFoundError:
        return False
