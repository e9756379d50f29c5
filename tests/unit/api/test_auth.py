"""User names of the peers of a Unix socket."""

import pwd
from types import SimpleNamespace
from typing import Any

import pytest

from rota.api.auth import _user_name  # pyright: ignore[reportPrivateUsage]

UID = 4242424


def test_an_unknown_user_name_is_looked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _user_name(UID) == str(UID)
    found: Any = SimpleNamespace(pw_name="ada")
    monkeypatch.setattr(pwd, "getpwuid", lambda _: found)
    assert _user_name(UID) == "ada"
