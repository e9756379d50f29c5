"""The container image of the tests."""

import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

IMAGE = "localhost/rota-test:latest"
OTHERS_IMAGE = "localhost/rota-test-others:latest"
"""The same image with another default user."""


def image(path: Path, tag: str, *, user: str = "") -> None:
    """An image in the format of `docker save`: one layer of empty directories as mount points."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for name in ("usr", "bin", "lib", "lib64", "etc", "tmp", "proc", "sys", "dev", "data"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(folder)
    digest = hashlib.sha256(layer.getvalue()).hexdigest()
    rootfs = {"type": "layers", "diff_ids": [f"sha256:{digest}"]}
    config = {"architecture": "amd64", "os": "linux", "config": {"User": user}, "rootfs": rootfs}
    manifest = [{"Config": "config.json", "RepoTags": [tag], "Layers": ["layer.tar"]}]
    contents = {"config.json": json.dumps(config), "manifest.json": json.dumps(manifest)}
    files = {name: text.encode() for name, text in contents.items()}
    with tarfile.open(path, "w") as tar:
        for name, content in {**files, "layer.tar": layer.getvalue()}.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = shutil.which("podman")
    if path is None or os.getuid() != 0:
        pytest.skip("podman is not installed, or we are not root")
    folder = tmp_path_factory.mktemp("image")
    for tag, user in ((IMAGE, ""), (OTHERS_IMAGE, "1234")):
        archive = folder / f"image{user}.tar"
        image(archive, tag, user=user)
        subprocess.run([path, "load", "--quiet", "--input", str(archive)], check=True)
    return path
