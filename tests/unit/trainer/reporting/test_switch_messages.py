"""Switch orders on the wire: complete or ignored."""

import json
from typing import Any

import pytest

from rota_trainer.reporting.messages import Member, Orders, Switch, orders_from, to_json

SWITCH = Switch(3, [Member(0, "127.0.0.1:4000"), Member(5, "[::1]:70")], is_broken=True)


def test_orders_survive_the_wire() -> None:
    orders = Orders(switch=SWITCH, refused="other code")
    assert orders_from(json.loads(json.dumps(to_json(orders)))) == orders


def test_orders_of_an_older_daemon_have_no_switch() -> None:
    assert orders_from({"stop": "held"}) == Orders(stop="held")


@pytest.mark.parametrize(
    "change",
    [
        {"generation": -1},
        {"generation": True},
        {"generation": "3"},
        {"members": []},
        {"members": "all"},
        {"members": [None]},
        {"members": [{"number": 0}]},
        {"members": [{"number": 0, "address": "nowhere"}]},
        {"members": [{"number": 0, "address": ":80"}]},
        {"members": [{"number": 0, "address": "a:0"}]},
        {"members": [{"number": 0, "address": "a:70000"}]},
        {"members": [{"number": -1, "address": "a:1"}]},
        {"members": [{"number": 0, "address": "a:1"}, {"number": 0, "address": "a:2"}]},
        {"members": [{"number": number, "address": "a:1"} for number in range(5000)]},
    ],
)
def test_incomplete_switch_is_ignored(change: dict[str, Any]) -> None:
    raw = {**to_json(SWITCH), **change}
    assert orders_from({"switch": raw, "stop": "held"}) == Orders(stop="held")


def test_unknown_fields_are_ignored() -> None:
    raw = {**to_json(SWITCH), "colour": "red"}
    raw["members"] = [{**each, "colour": "red"} for each in raw["members"]]
    assert orders_from({"switch": raw, "refused": 7}).switch == SWITCH
