"""The program that downloads shipped code in a pod, as the image's Python runs it."""

import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from rota.client.shipping import ship
from rota.daemon.artifacts.snapshots import Snapshots
from rota.daemon.artifacts.tar_stream import archive
from rota.engines.kubernetes.pods.code_init_container import FETCH_SCRIPT
from tests.support.shipping import UID, DirectApi, tree_of

WHOLE, REFUSED, BROKEN = 200, 403, 206
Answers = Iterator[int]


@contextmanager
def a_daemon(answers: Answers, stream: Callable[[], list[bytes]]) -> Generator[str]:
    """A scripted server: each response is the whole archive, a part of it, or an error."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            kind = next(answers)
            assert (self.path, self.headers["Authorization"]) == ("/v1/code", "Bearer secret")
            self.send_response(REFUSED if kind == REFUSED else WHOLE)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            refusal = [b'{"code": "forbidden", "message": "this token has ended"}']
            pieces = refusal if kind == REFUSED else stream()
            for piece in pieces[: len(pieces) // 2] if kind == BROKEN else pieces:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if piece else b"")
            self.wfile.write(b"" if kind == BROKEN else b"0\r\n\r\n")
            self.close_connection = True

        def log_message(self, format: str, *_: Any) -> None:  # noqa: A002 - its name there
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "code"
    (made / "package").mkdir(parents=True)
    (made / "package" / "large.py").write_text("x = 1\n" * 200_000)
    (made / "run.sh").write_text("#!/bin/sh\n")
    (made / "run.sh").chmod(0o755)
    (made / "latest").symlink_to("package")
    return made


def fetched(folder: Path, *answers: int) -> tuple[Path, "subprocess.CompletedProcess[str]"]:
    snapshots = Snapshots(folder.parent / "kept")
    manifest = snapshots.manifest(ship(folder, DirectApi(snapshots)), owner=UID)
    to = folder.parent / "shipped"
    to.mkdir()

    def stream() -> list[bytes]:
        return list(archive(manifest, lambda each: snapshots.open(each, owner=UID), now_s=0.0))

    with a_daemon(iter(answers), stream) as url:
        command = [sys.executable, "-I", "-c", FETCH_SCRIPT, str(to)]
        env = {"ROTA_URL": url, "ROTA_TOKEN": "secret"}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    return to, done


def test_download_is_retried_until_complete(folder: Path) -> None:
    found, done = fetched(folder, BROKEN, WHOLE)
    assert (done.returncode, done.stderr) == (0, "")
    assert tree_of(found) == tree_of(folder)


def test_error_of_the_daemon_is_printed(folder: Path) -> None:
    found, done = fetched(folder, REFUSED)
    assert (done.returncode, done.stderr) == (1, "this token has ended\n")
    assert tree_of(found) == {}
