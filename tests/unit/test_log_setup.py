"""The daemon's own logs stay small enough for a disk."""

from pathlib import Path

import pytest

from rota import observe
from rota.observe import put_aside


def test_a_large_log_is_put_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observe, "LOG_BYTES_MAX", 4)
    log, aside = tmp_path / "daemon.log", tmp_path / "daemon.log.1"
    put_aside(log)
    log.write_text("1234")
    put_aside(log)
    assert not aside.exists()
    for content in ("first", "second"):
        log.write_text(content)
        put_aside(log)
        assert aside.read_text() == content
        assert not log.exists()
