"""Where the workers of a cluster find their daemon."""

import pytest

from rota.api.cluster_place import can_be_reached, url_of


def test_what_is_said_counts_then_the_service_then_where_we_listen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert url_of("", "") == ""
    assert url_of("", "10.0.0.1:8800") == "http://10.0.0.1:8800"
    monkeypatch.setenv("ROTA_SERVICE_HOST", "10.96.0.7")
    monkeypatch.setenv("ROTA_SERVICE_PORT", "8800")
    assert url_of("", "0.0.0.0:8800") == "http://10.96.0.7:8800"
    assert url_of("https://rota.lab", "0.0.0.0:8800") == "https://rota.lab"


@pytest.mark.parametrize(
    ("url", "can"),
    [
        ("", False),
        ("http://127.0.0.1:8800", False),
        ("http://0.0.0.0:8800", False),
        ("http://[::1]:8800", False),
        ("http://localhost:8800", False),
        ("http://10.96.0.7:8800", True),
        ("https://rota.lab", True),
    ],
)
def test_nobody_else_reaches_what_is_only_here(url: str, can: bool) -> None:
    assert can_be_reached(url) == can
