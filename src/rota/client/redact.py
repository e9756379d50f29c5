"""Remove secrets from text that leaves the machine, such as support bundles. Pure.

Three things are removed: values that the caller names as secret or that have a name like
`password`; words that look like a known kind of token; passwords in URLs. In doubt, the text is
removed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

HIDDEN = "[removed]"
SHORTEST = 6
"""Shorter values are hidden only next to their name and not in the rest of the text: a report
without the letter `a` is useless."""
LONG_AND_RANDOM = 20
COMMONPLACE = frozenset({"true", "false", "none", "null", "default", "disabled", "enabled"})

_KEYWORD = (
    r"passw(?:or)?d|passphrase|secrets?|api[_-]?keys?|access[_-]?keys?|private[_-]?keys?"
    r"|credentials?|cookies?"
)
_SECRET_NAME = re.compile(
    rf"{_KEYWORD}|token(?!s|iz)|auth(?!or)|session|dsn"
    r"|(?:^|[_-])(?:key|pat)(?:$|[_-])|(?:pass|pwd)(?:$|[_-])",
    re.I,
)
_HARMLESS_NAMES = frozenset({"PWD", "OLDPWD"})

_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)", re.S
)
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30}://)([^\s/@:]*):([^\s/]*)@")
_BEARER = re.compile(r"\b(Bearer|Basic)\s+[A-Za-z0-9._~+/=-]{6,}", re.I)
_TOKENS = re.compile(
    r"""\b(?:
        rota(?:job)?_[A-Za-z0-9_-]{12,}
      | (?:ghp|gho|ghu|ghs|ghr|github_pat)_[A-Za-z0-9_]{10,}
      | glpat-[A-Za-z0-9_-]{10,}
      | hf_[A-Za-z0-9]{10,}
      | sk-[A-Za-z0-9_-]{12,}
      | xox[a-z]-[A-Za-z0-9-]{10,}
      | npm_[A-Za-z0-9]{10,}
      | pypi-[A-Za-z0-9_-]{16,}
      | (?:AKIA|ASIA)[A-Z0-9]{12,}
      | AIza[A-Za-z0-9_-]{20,}
      | eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?
    )""",
    re.X,
)
_VALUE = r"""(?:"[^"\n]*"|'[^'\n]*'|[^\s,;&"']+)"""
_ASSIGNED = re.compile(rf"""((?:{_KEYWORD})[\w.-]*["']?\s*[=:]\s*)({_VALUE})""", re.I)
_TOKEN_ASSIGNED = re.compile(rf"""(token["']?\s*[=:]\s*)(?!-?[\d.]+\b)({_VALUE})""", re.I)
"""Numbers stay: training logs count tokens."""
_FLAG = re.compile(rf"(--[\w-]*(?:{_KEYWORD}|token|auth)[\w-]*[ ]+)({_VALUE})", re.I)

_SECRET_FLAG = re.compile(rf"--?[\w-]*(?:{_KEYWORD}|token|auth)[\w-]*", re.I)


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Return the text without secrets. `secrets` are values to hide wherever they occur."""
    text = _without(text, secrets)
    text = _PRIVATE_KEY.sub(HIDDEN, text)
    text = _URL.sub(rf"\1\2:{HIDDEN}@", text)
    text = _BEARER.sub(rf"\1 {HIDDEN}", text)
    text = _TOKENS.sub(HIDDEN, text)
    for pattern in (_ASSIGNED, _TOKEN_ASSIGNED, _FLAG):
        text = pattern.sub(rf"\1{HIDDEN}", text)
    return text


def redact_env(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables, with values hidden if their name or form looks secret."""
    return {name: HIDDEN if is_secret(name, value) else value for name, value in env.items()}


def secrets_of(env: Mapping[str, str]) -> list[str]:
    """Return the secret values of an environment, to hide them in other texts."""
    return [
        value
        for name, value in env.items()
        if is_secret(name, value) and len(value) >= SHORTEST and value.lower() not in COMMONPLACE
    ]


def redact_command(command: Sequence[str]) -> list[str]:
    """Return the words of a command; a word after a flag such as `--api-key` is hidden."""
    secret = _after_secret_flags(command)
    return [HIDDEN if index in secret else redact(word) for index, word in enumerate(command)]


def secrets_of_command(command: Sequence[str]) -> list[str]:
    """Return the secret words of a command, to hide them in other texts."""
    words = [command[index] for index in _after_secret_flags(command)]
    return [word for word in words if len(word) >= SHORTEST and word.lower() not in COMMONPLACE]


def _after_secret_flags(command: Sequence[str]) -> set[int]:
    return {
        index
        for index, (flag, word) in enumerate(pairwise(command), start=1)
        if _SECRET_FLAG.fullmatch(flag) and not word.startswith("-")
    }


def is_secret(name: str, value: str) -> bool:
    if not value or name in _HARMLESS_NAMES:
        return False
    return bool(_SECRET_NAME.search(name)) or redact(value) != value or _is_random(value)


def _is_random(value: str) -> bool:
    """A long word with upper case, lower case and digits is probably random."""
    if len(value) < LONG_AND_RANDOM or not re.fullmatch(r"[A-Za-z0-9+=_-]+", value):
        return False
    return all(re.search(kind, value) for kind in ("[A-Z]", "[a-z]", "[0-9]"))


def _without(text: str, secrets: Iterable[str]) -> str:
    """Hide all secrets in one pass, longest first, so that no part of a secret is left."""
    words = sorted({each for each in secrets if each and each not in HIDDEN}, key=len, reverse=True)
    if not words:
        return text
    return re.sub("|".join(map(re.escape, words)), HIDDEN, text)
