"""The tables of `docs/reference/config.md`, out of the keys themselves."""

from rota.config.schema import DaemonSettings, JobDefaults, Key, SubmitSettings, keys_of

HEADER = "| key | value | default | variable | meaning |\n|---|---|---|---|---|"


def tables() -> list[str]:
    return [table(kind) for kind in (DaemonSettings, JobDefaults, SubmitSettings)]


def table(kind: type) -> str:
    # The defaults of jobs stand in sections, which no variable reaches.
    has_variables = kind is not JobDefaults
    return "\n".join(
        [HEADER, *(row(key, has_variables=has_variables) for key in keys_of(kind).values())]
    )


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
