"""Programs of workers on the test cluster: the machine's Python, in an almost empty image."""

from rota.engines.interface import Mount, Program
from rota.engines.kubernetes.settings import KubernetesSettings
from tests.kubernetes.cluster.images import PYTHON, SHELL, host_folders

SETTINGS = KubernetesSettings(
    image=PYTHON, placeholder_image=SHELL, host_paths=tuple(host_folders())
)


def program(code: str, **more: object) -> Program:
    """Runs a piece of Python."""
    mounts = tuple(Mount(folder, folder) for folder in host_folders())
    return Program(("-c", code), workdir="/", mounts=mounts, **more)  # pyright: ignore[reportArgumentType]
