"""Mounts of jobs as volumes of pods."""

import pytest

from rota.engines.interface import Mount, Program, WorkerLimits
from rota.engines.kubernetes.pods.volumes import volumes_of
from rota.engines.kubernetes.settings import KubernetesSettings
from rota.errors import UserError

GIB = 1024**3
SETTINGS = KubernetesSettings(host_paths=("/data", "/scratch/deep", "/scratch/"))


def mounted(source: str, *, is_writable: bool = False) -> tuple[dict[str, object], ...]:
    program = Program(("p",), mounts=(Mount(source, "/here", is_writable),))
    volumes, places = volumes_of(program, SETTINGS)
    return volumes[0], places[0]


def test_a_claim_and_a_folder_in_it() -> None:
    volume, place = mounted("pvc:sets/imagenet/train", is_writable=True)
    assert volume["persistentVolumeClaim"] == {"claimName": "sets", "readOnly": False}
    assert (place["mountPath"], place["subPath"]) == ("/here", "imagenet/train")
    assert not place["readOnly"]


def test_an_nfs_folder() -> None:
    volume, place = mounted("nfs:files.lab:/export/sets")
    assert volume["nfs"] == {"server": "files.lab", "path": "/export/sets", "readOnly": True}
    assert place["readOnly"]


@pytest.mark.parametrize(
    ("path", "top", "folder"),
    [
        ("/data", "/data", None),
        ("/data/", "/data", None),
        ("/data/sets//./a", "/data", "sets/a"),
        ("/scratch/x", "/scratch/", "x"),
        ("/scratch/deep/y", "/scratch/", "deep/y"),
    ],
)
def test_an_allowed_node_folder(path: str, top: str, folder: str | None) -> None:
    """Mounted as a subPath, so that links cannot lead out of it."""
    volume, place = mounted(path)
    assert volume["hostPath"] == {"path": top}
    assert place.get("subPath") == folder


@pytest.mark.parametrize("path", ["/", "/etc", "/database", "/data/../etc", "/data/.."])
def test_a_node_folder_that_is_not_allowed_is_refused(path: str) -> None:
    with pytest.raises(UserError, match=r"may not be mounted; allowed folders: /data"):
        mounted(path)


@pytest.mark.parametrize(
    ("memory_bytes", "size"), [(0, 8 * GIB), (4 * GIB, 2 * GIB), (64 * GIB, 8 * GIB)]
)
def test_shared_memory_is_half_of_the_memory_limit(memory_bytes: int, size: int) -> None:
    [volume], [place] = volumes_of(Program(("p",), limits=WorkerLimits(0, memory_bytes)), SETTINGS)
    assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": str(size)}
    assert place["mountPath"] == "/dev/shm"


def test_a_mounted_shared_memory_is_kept() -> None:
    program = Program(("p",), mounts=(Mount("/data/shm", "/dev/shm", is_writable=True),))
    assert len(volumes_of(program, SETTINGS)[0]) == 1
