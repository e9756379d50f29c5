"""What jobs mount, as volumes of a pod."""

import pytest

from rota.engines.base import Limits, Mount, Program
from rota.engines.kubernetes.settings import KubernetesSettings
from rota.engines.kubernetes.volumes import volumes_of
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


def test_a_folder_of_a_file_server() -> None:
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
def test_a_folder_of_a_node_where_it_is_allowed(path: str, top: str, folder: str | None) -> None:
    """As a folder of a volume, whose links are not followed out of it."""
    volume, place = mounted(path)
    assert volume["hostPath"] == {"path": top}
    assert place.get("subPath") == folder


@pytest.mark.parametrize("path", ["/", "/etc", "/database", "/data/../etc", "/data/.."])
def test_other_folders_of_a_node_are_refused(path: str) -> None:
    with pytest.raises(UserError, match=r"may not be mounted; below these it may: /data"):
        mounted(path)


@pytest.mark.parametrize(
    ("memory_bytes", "size"), [(0, 8 * GIB), (4 * GIB, 2 * GIB), (64 * GIB, 8 * GIB)]
)
def test_shared_memory_is_sized_by_the_workers_own(memory_bytes: int, size: int) -> None:
    [volume], [place] = volumes_of(Program(("p",), limits=Limits(0, memory_bytes)), SETTINGS)
    assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": str(size)}
    assert place["mountPath"] == "/dev/shm"


def test_who_brings_shared_memory_along_gets_no_second() -> None:
    program = Program(("p",), mounts=(Mount("/data/shm", "/dev/shm", is_writable=True),))
    assert len(volumes_of(program, SETTINGS)[0]) == 1
