"""The daemon's own logs stay small enough for a disk."""

from pathlib import Path

import pytest

from rota import log_setup
from rota.log_setup import rotate_log


def test_a_large_log_is_put_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_setup, "LOG_BYTES_MAX", 4)
    log, aside = tmp_path / "daemon.log", tmp_path / "daemon.log.1"
    rotate_log(log)
    log.write_text("1234")
    rotate_log(log)
    assert not aside.exists()
    for content in ("first", "second"):
        log.write_text(content)
        rotate_log(log)
        assert aside.read_text() == content
        assert not log.exists()
