"""HyperQueue: its server and one worker from the PyPI package, driven through its Python API.

The package has no command line, so measurements of commands stay empty. The code that uses
HyperQueue is in `hyperqueue_driver`, because it runs in the Python that has the package.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from benchmarks.one_box.peer import Amounts, NotOfferedError
from benchmarks.support.sandbox import Sandbox, first_line, sandbox, search_path

DRIVER = Path(__file__).with_name("hyperqueue_driver.py")
PRINT_VERSION = "import hyperqueue; print(hyperqueue.get_version())"


class HyperQueue:
    name = "HyperQueue"
    needs = "PyPI's `hyperqueue`"
    remark = (
        "HyperQueue is driven through its Python API: the PyPI package has no command line, and"
        " with it no list and no journal, so that jobs are kept in memory. A batch is one job of"
        " many tasks."
    )
    is_durable = False
    amounts = Amounts()

    def __init__(self) -> None:
        self._server: subprocess.Popen[bytes] | None = None
        self._client: subprocess.Popen[str] | None = None

    @property
    def version(self) -> str:
        return first_line(*_python("-c", PRINT_VERSION)).removeprefix("v")

    def available(self) -> bool:
        try:
            return bool(self.version)
        except (OSError, subprocess.CalledProcessError):
            return False

    @contextmanager
    def running(self, slots: int) -> Iterator[None]:
        with sandbox("hq") as place:
            folder = place.folder / "server"
            folder.mkdir()
            serve = _python(DRIVER, "serve", folder, str(slots))
            self._server = place.daemon(*serve, is_ready=(folder / "ready").exists)
            self._client = _start_client(place, folder)
            try:
                yield
            finally:
                self._client.kill()
                self._client.communicate()

    def submit_one(self, argv: Sequence[str]) -> None:
        self._ask({"do": "one", "argv": list(argv)})

    def submit_singles(self, n: int, n_clients: int) -> None:
        self._ask({"do": "singles", "n": n, "clients": n_clients})

    def submit_many(self, n: int) -> None:
        self._ask({"do": "many", "n": n})

    def run_noops(self, n: int) -> None:
        self._ask({"do": "noops", "n": n})

    def list_once(self) -> None:
        raise NotOfferedError("no list in the Python API")

    def survivors(self, n: int) -> int:
        raise NotOfferedError(f"no way to ask which of {n} jobs are known")

    def server_pids(self) -> Sequence[int]:
        return [] if self._server is None else [self._server.pid]

    def _ask(self, request: dict[str, object]) -> None:
        assert self._client is not None
        to_client, from_client = _pipes(self._client)
        to_client.write(json.dumps(request) + "\n")
        to_client.flush()
        if not from_client.readline():
            raise RuntimeError(f"HyperQueue's client ended at {request}")


def _start_client(place: Sandbox, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        _python(DRIVER, "submit", folder),
        env=place.environment,
        cwd=place.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _pipes(process: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    assert process.stdin is not None
    assert process.stdout is not None
    return process.stdin, process.stdout


def _python(*arguments: str | Path) -> list[str]:
    """The Python with the package. It must not see this folder, which has a `hyperqueue`, too."""
    found = shutil.which("python3", path=search_path()) or "python3"
    return [found, "-I", *map(str, arguments)]
