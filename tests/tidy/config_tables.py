"""The tables of `docs/reference/config.md`, out of the keys themselves."""

from collections.abc import Mapping
from pathlib import Path

from rota.config.keys import Key, submit_keys
from rota.config.limits import UserLimits
from rota.config.schema import DaemonSettings, JobDefaults, keys_of
from tests.tidy.tree import ROOT

PAGE = ROOT / "docs" / "reference" / "config.md"
HEADER = "| key | value | default | variable | meaning |\n|---|---|---|---|---|"


def generated_files() -> dict[Path, str]:
    """The page with the current tables: each replaces the table that begins with its first key."""
    text = PAGE.read_text()
    for each in tables():
        begin = text.index("\n".join(each.split("\n")[:2]), text.index(_heading(each)))
        end = text.index("\n\n", begin)
        text = text[:begin] + each + text[end:]
    return {PAGE: text}


def _heading(table: str) -> str:
    headings = (
        "## The daemon",
        "## Limits of one user",
        "## Job defaults of a site",
        "## Submits",
    )
    return headings[tables().index(table)]


def tables() -> list[str]:
    # The defaults of jobs stand in sections, which no variable reaches.
    return [
        table(keys_of(DaemonSettings)),
        table(keys_of(UserLimits)),
        table(keys_of(JobDefaults), has_variables=False),
        table(submit_keys()),
    ]


def table(keys: Mapping[str, Key], *, has_variables: bool = True) -> str:
    return "\n".join([HEADER, *(row(key, has_variables=has_variables) for key in keys.values())])


def row(key: Key, *, has_variables: bool) -> str:
    variable = f"`{key.variable}`" if key.variable and has_variables else ""
    cells = (f"`{key.name}`", f"`{key.form}`", default(key), variable, key.description)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def default(key: Key) -> str:
    if isinstance(key.default, bool):
        return f"`{str(key.default).lower()}`"
    if not key.default:
        return "0" if key.default == 0 else ""
    if isinstance(key.default, float):
        days = key.default / 86400
        return f"`{days:g}d`" if days >= 1 else f"`{key.default:g}s`"
    if key.form == "SIZE":
        return f"`{key.default // 2**20}MiB`"
    return f"`{key.default}`"
