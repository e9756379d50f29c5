"""The flags of `rota up` that the next start uses again.

A daemon that comes back without a flag of its last start, such as `--virtual-gpus`, would be a
different daemon. So the state directory keeps the flags, and only a flag changes a flag.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from rota.config.atomic_file import replace_file
from rota.errors import UserError

FLAGS_NAME = "flags.json"


def remembered_flags(folder: Path) -> dict[str, str]:
    """Setting name -> text of its flag at the last start."""
    path = folder / FLAGS_NAME
    try:
        stored: Any = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        stored = error
    if not isinstance(stored, dict):
        raise UserError(
            f"{path}: the flags of the last start are not readable",
            "start with 'rota up --reset-flags' and the flags that you want",
        )
    texts = cast("dict[str, object]", stored)
    return {name: text for name, text in texts.items() if isinstance(text, str) and text}


def remember_flags(folder: Path, flags: Mapping[str, str]) -> None:
    """Keep the flags for the next start."""
    path = folder / FLAGS_NAME
    if flags or path.exists():
        replace_file(path, json.dumps(dict(flags), indent=2) + "\n")


def flag_words(flags: Mapping[str, str]) -> str:
    """The flags as on a command line."""
    return " ".join(
        flag_of(name) if text == "true" else f"{flag_of(name)} {text}"
        for name, text in flags.items()
    )


def flag_of(setting: str) -> str:
    """The flag of `rota up` for a setting."""
    return "--context" if setting == "kube_context" else f"--{setting.replace('_', '-')}"
