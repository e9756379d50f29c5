"""Images without a registry, in the format of `docker save`.

The test image is almost empty: its pods see the machine's programs and the project's Python
environment, read-only, through the folders of `host_folders`.
"""

import hashlib
import io
import json
import platform
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.kubernetes.cluster.layout import PROJECT, SOURCES

PAUSE = "rota.test/pause:1"
PYTHON = "rota.test/python:1"
SHELL = "rota.test/shell:1"
"""A static shell with the few programs that it needs."""
BARE = "rota.test/bare:1"
"""Like `PYTHON`, but without an entrypoint."""
SYSTEM_FOLDERS = ("/usr", "/bin", "/lib", "/lib64")
EMPTY_FOLDERS = (*SYSTEM_FOLDERS, "/etc", "/tmp", "/root", "/proc", "/sys", "/dev", "/run")


def host_folders() -> list[str]:
    """The folders that a pod of the test image mounts from the machine, read-only and at the
    same paths. The environment links to the interpreter that created it, which may be in any
    folder."""
    python = [Path(each).resolve() for each in (sys.prefix, sys.base_prefix)]
    found = [Path(each) for each in SYSTEM_FOLDERS if Path(each).exists()]
    for each in (*python, PROJECT):
        if not any(each.is_relative_to(known) for known in found):
            found.append(each)
    return [str(each) for each in found]


NAMES = ("pause", "python", "bare", "shell")


def write_all(folder: Path) -> None:
    for name, write in zip(
        NAMES, (write_pause, write_python, write_bare, write_shell), strict=True
    ):
        write(folder / f"{name}.tar")


def write_pause(path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "pause"
        source = SOURCES / "pause.c"
        subprocess.run(["gcc", "-static", "-Os", "-o", program, source], check=True)
        save(path, PAUSE, layer=layer_of({"pause": program.read_bytes()}), command=["/pause"])


def write_python(path: Path) -> None:
    save(path, PYTHON, layer=layer_of(_accounts()), command=[sys.executable])


def write_bare(path: Path) -> None:
    save(path, BARE, layer=layer_of(_accounts()), command=[])


def _accounts() -> dict[str, bytes]:
    return {
        "etc/passwd": b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n",
        "etc/group": b"root:x:0:\nnogroup:x:65534:\n",
        "etc/hosts": b"127.0.0.1 localhost\n",
    }


def write_shell(path: Path) -> None:
    programs = {"bin/sh": "/bin/sh", "bin/sleep": "/bin/sleep"}
    needed = subprocess.run(
        ["ldd", *programs.values()], check=True, capture_output=True, text=True
    ).stdout
    libraries = {word for word in needed.split() if word.startswith("/") and word[-1] != ":"}
    files = programs | {each.lstrip("/"): each for each in libraries}
    content = {name: Path(source).resolve().read_bytes() for name, source in files.items()}
    save(path, SHELL, layer=layer_of(content), command=["/bin/sh"])


def layer_of(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for folder in EMPTY_FOLDERS:
            entry = tarfile.TarInfo(folder.lstrip("/"))
            entry.type = tarfile.DIRTYPE
            entry.mode = 0o1777 if folder == "/tmp" else 0o755
            archive.addfile(entry)
        for name, content in files.items():
            add(archive, name, content, mode=0o755)
    return buffer.getvalue()


def save(path: Path, name: str, *, layer: bytes, command: list[str]) -> None:
    environment = ["PATH=/usr/local/bin:/usr/bin:/bin"]
    config = {
        "architecture": architecture(),
        "os": "linux",
        "config": {"Entrypoint": command, "Env": environment, "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(path, "w") as archive:
        add(archive, "config.json", json.dumps(config).encode())
        add(archive, "layer.tar", layer)
        add(archive, "manifest.json", json.dumps(manifest).encode())


def add(archive: tarfile.TarFile, name: str, content: bytes, *, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    entry.mode = mode
    archive.addfile(entry, io.BytesIO(content))


def architecture() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
