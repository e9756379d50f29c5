"""Validation of move targets."""

import pytest

from rota.daemon.access.authorization import Caller
from rota.daemon.errors import RefusedError
from rota.daemon.migration.requests import DEFAULT_MIGRATION_LIMITS, is_link_local, validate_move
from rota.wire.moves import MoveRequest

ADA = Caller("ada")


@pytest.mark.parametrize(
    "url",
    [
        "http://[::1",
        "http://a b:80",
        "http://lab:x",
        "http://lab:99999",
        "http://lab:0",
        "http://u:p@lab",
        "ftp://lab",
        "http://lab/path",
        "http://169.254.169.254",
        "http://[::ffff:169.254.169.254]",
        "http://[fe80::1%25lo]",
    ],
)
def test_invalid_addresses_are_refused(url: str) -> None:
    with pytest.raises(RefusedError) as refused:
        validate_move(
            ADA,
            MoveRequest(["job"], to="lab", url=url, token="t", after="1m"),
            limits=DEFAULT_MIGRATION_LIMITS,
        )
    assert refused.value.message.startswith("url: ")


@pytest.mark.parametrize("url", ["http://lab:80/", "https://[::1]:7600", "http://lab"])
def test_valid_addresses_are_accepted(url: str) -> None:
    request = MoveRequest(["job"], to="lab", url=url, token="t", after="1m")
    target, wait_s = validate_move(ADA, request, limits=DEFAULT_MIGRATION_LIMITS)
    assert (target.url, wait_s) == (url.removesuffix("/"), 60.0)


def test_only_addresses_are_link_local() -> None:
    found = filter(
        is_link_local, ["169.254.169.254", "fe80::1%eth0", "127.0.0.1", "::1", "lab", ""]
    )
    assert list(found) == ["169.254.169.254", "fe80::1%eth0"]
