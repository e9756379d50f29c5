"""JSON for programs: never NaN, and in ASCII, which every terminal and every name survives."""

from __future__ import annotations

import json

from rota.cli.output.lines import say


def say_json(value: object) -> None:
    say(json.dumps(value, indent=2, allow_nan=False))
