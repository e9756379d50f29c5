"""Settings from all the places they may stand in, and where each came from.

Weakest first: the built-in default; the site's file; the state folder's; for submits, a project's
`.rota.toml`; the environment; flags. Every file is checked as a whole: a key that does not exist
and a value of the wrong type are mistakes, never passed over.
"""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from rota.config.keys import Daemon, JobDefaults, Key, Submit, keys_of
from rota.config.values import Value, texts, variables
from rota.errors import InputError, UserError, Where, meant

SITE_FILE = Path("/etc/rota/config.toml")
STATE_NAME = "config.toml"
POLICY_NAME = "policy"
"""In the state folder: the policy that was chosen at run time."""
PROJECT_NAME = ".rota.toml"
DEFAULT = "default"
MOST_BYTES = 1024**2

Place = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Setting:
    place: Place
    value: Value
    origin: str = DEFAULT
    """A file, a variable or a flag."""

    @property
    def name(self) -> str:
        return ".".join(self.place)


@dataclass(frozen=True, slots=True)
class Sources:
    """Where to look."""

    folder: Path
    """The daemon's state folder, or, for submits, the folder that the user is in."""
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    flags: Mapping[str, str] = field(default_factory=dict[str, str])
    """By the name of their key; an empty one was not given."""
    site: Path = field(default_factory=lambda: SITE_FILE)


@contextmanager
def blamed(setting: Setting) -> Generator[None]:
    """A mistake in a setting is told with the place that it came from."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{setting.origin}: {error.message}", error.hint) from error


class Found:
    """All settings; of two for the same place, the later one holds."""

    def __init__(self, settings: Iterable[Setting]) -> None:
        self._by_place = {each.place: each for each in settings}

    def __iter__(self) -> Iterator[Setting]:
        return iter(self._by_place.values())

    def get(self, *place: str) -> Setting:
        return self._by_place[place]

    def daemon(self) -> Daemon:
        return Daemon(**self._values(Daemon))

    def submit(self) -> dict[str, Any]:
        """Only what is said somewhere, by the names of a request's fields."""
        found = Submit(**self._values(Submit))
        values: dict[str, Value] = {name: getattr(found, name) for name in keys_of(Submit)}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in values.items()
            if value
        }

    def defaults(self, project: str = "") -> JobDefaults:
        """The site's, and over them the project's."""
        own = ("projects", project, "defaults")
        return JobDefaults(**self._values(JobDefaults, ("defaults",), own))

    def _values(self, kind: type, *sections: Place) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for section in sections or ((),):
            for name, key in keys_of(kind).items():
                place = (*section, name)
                if key.read is variables:
                    values[key.field] = values.get(key.field, {}) | self._variables(place)
                elif place in self._by_place:
                    values[key.field] = self._by_place[place].value
        return values

    def _variables(self, place: Place) -> dict[str, str]:
        depth = len(place)
        return {
            each.place[-1]: str(each.value)
            for each in self._by_place.values()
            if len(each.place) == depth + 1 and each.place[:depth] == place
        }


def daemon_settings(sources: Sources) -> Found:
    return Found(
        [
            *_built_in(Daemon),
            *_built_in(JobDefaults, "defaults"),
            *_daemon_file(sources.site),
            *_daemon_file(sources.folder / STATE_NAME),
            *_chosen_policy(sources.folder / POLICY_NAME),
            *_environment(Daemon, sources.environment),
            *_flags(Daemon, sources.flags),
        ]
    )


def submit_settings(sources: Sources) -> Found:
    return Found(
        [
            *_built_in(Submit),
            *_project_file(sources.folder),
            *_environment(Submit, sources.environment),
        ]
    )


def _built_in(kind: type, *section: str) -> Iterator[Setting]:
    for name, key in keys_of(kind).items():
        if key.read is not variables:
            yield Setting((*section, name), key.default)


# -- files ------------------------------------------------------------------------------------


def _daemon_file(path: Path) -> Iterator[Setting]:
    sections = ("defaults", "projects")
    for name, value in _toml(path).items():
        if name == "defaults":
            yield from _section(path, (name,), value=value)
        elif name == "projects":
            for project, inner in _table(path, (name,), value=value).items():
                for word, section in _table(path, (name, project), value=inner).items():
                    place = (name, project, word)
                    if word != "defaults":
                        raise _unknown(path, place, known=["defaults"])
                    yield from _section(path, place, value=section)
        else:
            yield from _checked(path, (name,), value=value, kind=Daemon, more=sections)


def _project_file(folder: Path) -> Iterator[Setting]:
    """The nearest one, from the folder upward."""
    for each in (folder, *folder.parents):
        path = each / PROJECT_NAME
        if path.is_file():
            _require_trusted(path)
            for name, value in _toml(path).items():
                yield from _checked(path, (name,), value=value, kind=Submit)
            return


def _require_trusted(path: Path) -> None:
    """Or whoever can write to /tmp would say what others run."""
    owner = path.stat().st_uid
    if owner not in (0, os.geteuid()) and path.parent.stat().st_mode & stat.S_IWOTH:
        what = "it is another user's, in a folder that anybody can write to"
        raise InputError(Where(str(path)), what, "work in a folder of your own")


def _chosen_policy(path: Path) -> Iterator[Setting]:
    if path.exists():
        yield Setting(("policy",), path.read_text(encoding="utf-8").strip(), str(path))


def _toml(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise InputError(Where(str(path)), "it is larger than 1 MiB", "is it the right file?")
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError:
        raise InputError(Where(str(path)), "it is not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        words = str(error)
        what = f"it is not TOML: {words[:1].lower()}{words[1:]}"
        raise InputError(Where(str(path)), what) from None


def _section(path: Path, place: Place, *, value: object) -> Iterator[Setting]:
    for name, inner in _table(path, place, value=value).items():
        yield from _checked(path, (*place, name), value=inner, kind=JobDefaults)


def _checked(
    path: Path, place: Place, *, value: object, kind: type, more: Iterable[str] = ()
) -> Iterator[Setting]:
    known = keys_of(kind)
    key = known.get(place[-1])
    if key is None:
        raise _unknown(path, place, known=[*known, *more])
    try:
        read = key.read(value)
    except ValueError as error:
        raise InputError(Where(str(path), field=".".join(place)), str(error)) from None
    yield from _settings(place, key, value=read, origin=str(path))


def _settings(place: Place, key: Key, *, value: Any, origin: str) -> Iterator[Setting]:
    """Of a table, each variable by itself: a later file adds to it."""
    if key.read is variables:
        for name, each in cast("dict[str, str]", value).items():
            yield Setting((*place, name), each, origin)
    else:
        yield Setting(place, value, origin)


def _table(path: Path, place: Place, *, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(Where(str(path), field=".".join(place)), "it is not a table of keys")
    return cast("dict[str, Any]", value)


def _unknown(path: Path, place: Place, *, known: list[str]) -> InputError:
    where = Where(str(path), field=".".join(place))
    hint = meant(place[-1], known) or f"there are {', '.join(known)}"
    return InputError(where, "there is no such key", hint)


# -- words ------------------------------------------------------------------------------------


def _environment(kind: type, environment: Mapping[str, str]) -> Iterator[Setting]:
    words = {key.variable: (key, environment.get(key.variable)) for key in keys_of(kind).values()}
    for variable, (key, word) in words.items():
        if word:
            yield _word(key, word, origin=variable)


def _flags(kind: type, flags: Mapping[str, str]) -> Iterator[Setting]:
    known = keys_of(kind)
    for name, word in flags.items():
        if word:
            yield _word(known[name], word, origin=f"--{name.replace('_', '-')}")


def _word(key: Key, word: str, *, origin: str) -> Setting:
    given: object = word
    if key.read is texts:
        given = [part.strip() for part in word.split(",") if part.strip()]
    try:
        return Setting((key.name,), key.read(given), origin)
    except ValueError as error:
        raise UserError(f"{origin}: {error}") from None
