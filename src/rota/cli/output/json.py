"""JSON for programs: standard JSON, so never NaN, and the same bytes for the same values."""

from __future__ import annotations

import json

from rota.cli.output.lines import say


def say_json(value: object) -> None:
    say(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))
