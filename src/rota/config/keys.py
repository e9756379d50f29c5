"""`Key`, the description of a configuration key, and the keys of submits.

The keys of submits are those fields of a job that `.rota.toml` may set, from the table of job
fields. The keys of the daemon are in `schema.py`, which `rota submit` does not import.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from rota.config.parsers import Reader, texts, variables, whole, word
from rota.wire.job_request import JobField, job_fields

VARIABLE_PREFIX = "ROTA_"
NO_LIMIT = 2**31


@dataclass(frozen=True, slots=True)
class Key:
    """One key. `name` is its name in files, if that is not the name of the field. `form` is the
    placeholder of its value in help texts."""

    read: Reader
    form: str
    description: str
    name: str = ""
    field: str = ""
    default: Any = None

    @property
    def variable(self) -> str:
        """The environment variable of the key; empty if there is none."""
        return "" if self.read is variables else f"{VARIABLE_PREFIX}{self.name.upper()}"


@cache
def submit_keys() -> dict[str, Key]:
    """The keys of `.rota.toml`, by name."""
    return {name: _key(each) for name, each in job_fields().items() if each.info.is_setting}


def _key(field: JobField) -> Key:
    form = "TABLE" if field.type == "dict[str, str]" else field.info.metavar
    default = () if field.type.startswith("list") else field.default
    return Key(_reader(field), form, field.info.text, field.name, field.name, default)


def _reader(field: JobField) -> Reader:
    info = field.info
    if field.type == "int":
        low = -NO_LIMIT if info.minimum is None else info.minimum
        return whole(low, NO_LIMIT if info.maximum is None else info.maximum)
    by_type = {"str": word, "list[str]": texts}
    return by_type.get(field.type, variables)
