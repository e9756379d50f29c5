"""The small files of keepers and the daemon."""

import errno
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from rota.engines.local import cradle, files

WRITE = """
import resource, sys
sys.path.insert(0, sys.argv[1])
from rota.engines.local import files
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]),) * 2)
try:
    files.write_json(sys.argv[2], {"reason": "x" * 100})
except OSError as error:
    sys.exit(error.errno)
"""


@pytest.mark.parametrize(
    ("room", "code"), [(resource.RLIM_INFINITY, 0), (50, errno.ENOSPC)], ids=["enough", "little"]
)
def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, room: int, code: int) -> None:
    """A limit of the file's size has a write end early, just like the last block of a disk."""
    path = tmp_path / "exit.json"
    files.write_json(str(path), {"reason": "old"})
    words = [sys.executable, "-S", "-c", WRITE, str(cradle.SOURCE), str(path), str(room)]
    assert subprocess.run(words, check=False).returncode == code
    expected = {"reason": "old" if code else "x" * 100}
    assert files.read_json(str(path)) == expected
    assert list(tmp_path.iterdir()) == [path]
