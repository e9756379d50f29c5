"""Load settings from all sources, and remember the origin of each.

Sources, weakest first: built-in default; site file; file in the state directory; flags of the last
start; for submits, `.rota.toml` of the project; environment; flags. Every file is validated as a
whole: an unknown key or a value of the wrong type is an error. `rota submit` loads neither the keys
of the daemon nor, without a file, the parser of TOML.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rota.config.keys import Key, submit_keys
from rota.config.parsers import Value, texts, variables
from rota.config.start_flags import flag_of
from rota.errors import InputError, InputLocation, UserError, did_you_mean

if TYPE_CHECKING:
    from rota.config.limits import UserLimits
    from rota.config.schema import DaemonSettings, JobDefaults
    from rota.wire.daemon import SettingView

SITE_FILE = Path("/etc/rota/config.toml")
STATE_NAME = "config.toml"
POLICY_NAME = "policy"
"""In the state directory: the policy that was set at run time."""
PROJECT_NAME = ".rota.toml"
DEFAULT = "default"
MOST_BYTES = 1024**2

KeyPath = tuple[str, ...]
Keys = Mapping[str, Key]


@dataclass(frozen=True, slots=True)
class Setting:
    """One value and its origin."""

    place: KeyPath
    value: Value
    origin: str = DEFAULT
    """A file, a variable or a flag."""

    @property
    def name(self) -> str:
        return ".".join(self.place)

    def view(self) -> SettingView:
        from rota.wire.daemon import SettingView

        return SettingView(self.name, self.value, self.origin)


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources of settings."""

    folder: Path
    """The daemon's state directory, or, for submits, the user's working directory."""
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    flags: Mapping[str, str] = field(default_factory=dict[str, str])
    """Key name -> text; empty text means that the flag was not given."""
    remembered: Mapping[str, str] = field(default_factory=dict[str, str])
    """The flags of the last start of the daemon."""
    site: Path = field(default_factory=lambda: SITE_FILE)


@contextmanager
def error_names_origin(setting: Setting) -> Generator[None]:
    """Add the origin of a setting to errors about its value."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{setting.origin}: {error.message}", error.hint) from error


class LoadedSettings:
    """All settings. Of two settings for the same key, the later one wins."""

    def __init__(self, settings: Iterable[Setting]) -> None:
        self._by_place = {each.place: each for each in settings}

    def __iter__(self) -> Iterator[Setting]:
        return iter(self._by_place.values())

    def get(self, *place: str) -> Setting:
        return self._by_place[place]

    def daemon(self) -> DaemonSettings:
        from rota.config.schema import DaemonSettings, keys_of

        return DaemonSettings(**self._values(keys_of(DaemonSettings)))

    def limits(self) -> UserLimits:
        from rota.config.limits import UserLimits
        from rota.config.schema import keys_of

        return UserLimits(**self._values(keys_of(UserLimits)))

    def submit(self) -> dict[str, Any]:
        """Return the settings that have a value, by the field names of `JobRequest`."""
        return {
            name: list(cast("tuple[str, ...]", value)) if isinstance(value, tuple) else value
            for name, value in self._values(submit_keys()).items()
            if value
        }

    def defaults(self, project: str = "") -> JobDefaults:
        """Return the job defaults of the site, overridden by those of the project."""
        from rota.config.schema import JobDefaults, keys_of

        own = ("projects", project, "defaults")
        return JobDefaults(**self._values(keys_of(JobDefaults), ("defaults",), own))

    def _values(self, keys: Keys, *sections: KeyPath) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for section in sections or ((),):
            for name, key in keys.items():
                place = (*section, name)
                if key.read is variables:
                    values[key.field] = values.get(key.field, {}) | self._variables(place)
                elif place in self._by_place:
                    values[key.field] = self._by_place[place].value
        return values

    def _variables(self, place: KeyPath) -> dict[str, str]:
        depth = len(place)
        return {
            each.place[-1]: str(each.value)
            for each in self._by_place.values()
            if len(each.place) == depth + 1 and each.place[:depth] == place
        }


def daemon_settings(sources: Sources) -> LoadedSettings:
    from rota.config.schema import JobDefaults, daemon_keys, keys_of

    keys = daemon_keys()
    return LoadedSettings(
        [
            *_built_in(keys),
            *_built_in(keys_of(JobDefaults), "defaults"),
            *_daemon_file(sources.site),
            *_daemon_file(sources.folder / STATE_NAME),
            *_remembered(keys, sources.remembered),
            *_chosen_policy(sources.folder / POLICY_NAME),
            *_environment(keys, sources.environment),
            *_flags(keys, sources.flags),
        ]
    )


def home_setting(folder: Path) -> Setting:
    """The state directory, which no file can set."""
    return Setting(("home",), str(folder), "ROTA_HOME" if os.environ.get("ROTA_HOME") else DEFAULT)


def submit_settings(sources: Sources) -> LoadedSettings:
    return LoadedSettings(
        [
            *_built_in(submit_keys()),
            *_project_file(sources.folder),
            *_environment(_submit_variables(sources.environment), sources.environment),
        ]
    )


def site_inherit_env() -> tuple[str, ...]:
    """The list `inherit_env` of the site file on this machine; empty if there is none that this
    user can read. The daemon reports errors of the file."""
    try:
        listed: object = _toml(SITE_FILE).get("inherit_env", ()) if SITE_FILE.is_file() else ()
        return texts(listed)
    except (OSError, UserError, ValueError):
        return ()


def _built_in(keys: Keys, *section: str) -> Iterator[Setting]:
    for name, key in keys.items():
        if key.read is not variables:
            yield Setting((*section, name), key.default)


# -- files ------------------------------------------------------------------------------------


def _daemon_file(path: Path) -> Iterator[Setting]:
    from rota.config.schema import daemon_keys

    sections = ("defaults", "projects")
    for name, value in _toml(path).items():
        if name == "defaults":
            yield from _section(path, (name,), value=value)
        elif name == "projects":
            for project, inner in _table(path, (name,), value=value).items():
                for inner_name, section in _table(path, (name, project), value=inner).items():
                    place = (name, project, inner_name)
                    if inner_name != "defaults":
                        raise _unknown(path, place, known=["defaults"])
                    yield from _section(path, place, value=section)
        else:
            yield from _checked(path, (name,), value=value, known=daemon_keys(), more=sections)


def _project_file(folder: Path) -> Iterator[Setting]:
    """Read the nearest project file, from the directory upwards."""
    for each in (folder, *folder.parents):
        path = each / PROJECT_NAME
        if path.is_file():
            _require_trusted(path)
            for name, value in _toml(path).items():
                yield from _checked(path, (name,), value=value, known=submit_keys())
            return


def _require_trusted(path: Path) -> None:
    """Reject a file of another user in a world-writable directory: otherwise any user could put a
    file into /tmp and change the jobs of others."""
    owner = path.stat().st_uid
    if owner not in (0, os.geteuid()) and path.parent.stat().st_mode & stat.S_IWOTH:
        what = "the file belongs to another user and its directory is world-writable"
        raise InputError(InputLocation(str(path)), what, "work in a directory of your own")


def _chosen_policy(path: Path) -> Iterator[Setting]:
    if path.exists():
        yield Setting(("policy",), path.read_text(encoding="utf-8").strip(), str(path))


def _toml(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        if path.stat().st_size > MOST_BYTES:
            raise InputError(
                InputLocation(str(path)), "larger than 1 MiB", "check that this is the right file"
            )
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError:
        raise InputError(InputLocation(str(path)), "not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        reason = str(error)
        what = f"invalid TOML: {reason[:1].lower()}{reason[1:]}"
        raise InputError(InputLocation(str(path)), what) from None


def _section(path: Path, place: KeyPath, *, value: object) -> Iterator[Setting]:
    from rota.config.schema import JobDefaults, keys_of

    known = keys_of(JobDefaults)
    for name, inner in _table(path, place, value=value).items():
        yield from _checked(path, (*place, name), value=inner, known=known)


def _checked(
    path: Path, place: KeyPath, *, value: object, known: Keys, more: Iterable[str] = ()
) -> Iterator[Setting]:
    key = known.get(place[-1])
    if key is None:
        raise _unknown(path, place, known=[*known, *more])
    try:
        read = key.read(value)
    except ValueError as error:
        raise InputError(InputLocation(str(path), field=".".join(place)), str(error)) from None
    yield from _settings(place, key, value=read, origin=str(path))


def _settings(place: KeyPath, key: Key, *, value: Any, origin: str) -> Iterator[Setting]:
    """Yield one setting per key; for a table of variables one per variable, so that a later file
    adds to the table."""
    if key.read is variables:
        for name, each in cast("dict[str, str]", value).items():
            yield Setting((*place, name), each, origin)
    else:
        yield Setting(place, value, origin)


def _table(path: Path, place: KeyPath, *, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(InputLocation(str(path), field=".".join(place)), "must be a table")
    return cast("dict[str, Any]", value)


def _unknown(path: Path, place: KeyPath, *, known: list[str]) -> InputError:
    where = InputLocation(str(path), field=".".join(place))
    hint = did_you_mean(place[-1], known) or f"known keys: {', '.join(known)}"
    return InputError(where, "unknown key", hint)


# -- environment and flags --------------------------------------------------------------------


def _environment(keys: Keys, environment: Mapping[str, str]) -> Iterator[Setting]:
    given = {key.variable: (key, environment.get(key.variable)) for key in keys.values()}
    for variable, (key, text) in given.items():
        if text:
            yield _parsed(key, text, origin=variable)


def _submit_variables(environment: Mapping[str, str]) -> Keys:
    """The keys that the environment may set. Inside a job, rota itself sets `ROTA_GPUS`: it is the
    size of that job and no default for the next."""
    inside = {"gpus"} if environment.get("ROTA_JOB") else set[str]()
    return {name: key for name, key in submit_keys().items() if name not in inside}


def _remembered(known: Keys, flags: Mapping[str, str]) -> Iterator[Setting]:
    """Another version may have had other flags."""
    for name, text in flags.items():
        if name in known:
            yield _parsed(known[name], text, origin=f"last start, {flag_of(name)}")


def _flags(known: Keys, flags: Mapping[str, str]) -> Iterator[Setting]:
    for name, text in flags.items():
        if text:
            yield _parsed(known[name], text, origin=flag_of(name))


def _parsed(key: Key, text: str, *, origin: str) -> Setting:
    given: object = text
    if key.read is texts:
        given = [part.strip() for part in text.split(",") if part.strip()]
    try:
        return Setting((key.name,), key.read(given), origin)
    except ValueError as error:
        raise UserError(f"{origin}: {error}") from None
