"""What the daemon calls those whom the kernel names by number."""

import pwd
from types import SimpleNamespace
from typing import Any

import pytest

from rota.api.auth import _name_of  # pyright: ignore[reportPrivateUsage]

UID = 4242424


def test_a_name_that_is_not_known_now_may_be_known_later(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _name_of(UID) == str(UID)
    found: Any = SimpleNamespace(pw_name="ada")
    monkeypatch.setattr(pwd, "getpwuid", lambda _: found)
    assert _name_of(UID) == "ada"
