"""The state files of supervisors and the daemon."""

import errno
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from rota.engines.local import fork_server_client
from rota.engines.local.supervisor import state_files

WRITE = """
import resource, sys
sys.path.insert(0, sys.argv[1])
from rota.engines.local.supervisor import state_files
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]),) * 2)
try:
    state_files.write_json(sys.argv[2], {"reason": "x" * 100})
except OSError as error:
    sys.exit(error.errno)
"""


@pytest.mark.parametrize(
    ("room", "code"), [(resource.RLIM_INFINITY, 0), (50, errno.ENOSPC)], ids=["enough", "little"]
)
def test_write_json_writes_all_or_nothing(tmp_path: Path, room: int, code: int) -> None:
    """A file size limit makes a write stop early, like a full disk."""
    path = tmp_path / "exit.json"
    state_files.write_json(str(path), {"reason": "old"})
    words = [
        sys.executable,
        "-S",
        "-c",
        WRITE,
        str(fork_server_client.SOURCE),
        str(path),
        str(room),
    ]
    assert subprocess.run(words, check=False).returncode == code
    expected = {"reason": "old" if code else "x" * 100}
    assert state_files.read_json(str(path)) == expected
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("content", "grace_s"),
    [({"grace_s": 5}, 5.0), ({}, None), ({"grace_s": None}, None), ({"grace_s": "x"}, None)],
)
def test_stop_request_without_a_grace_period_is_a_stop_request(
    tmp_path: Path, content: dict[str, object], grace_s: float | None
) -> None:
    worker_dir = str(tmp_path / "0")
    assert not state_files.is_stop_requested(worker_dir)
    assert state_files.requested_grace_s(worker_dir) is None
    state_files.write_json(str(tmp_path / state_files.STOP), content)
    assert state_files.is_stop_requested(worker_dir)
    assert state_files.requested_grace_s(worker_dir) == grace_s
