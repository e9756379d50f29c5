"""`rota context`: names daemons and selects the one that commands contact."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rota.cli import complete
from rota.cli.command import CommandArgument, CommandOption, command, flag
from rota.cli.options import JSON
from rota.cli.output.console import print_err, print_out
from rota.errors import UserError

if TYPE_CHECKING:
    from rota.client.contexts import Context

HELP = "Name daemons and select the one that commands contact."
NAME = CommandArgument(
    "name",
    metavar="NAME",
    text="Context name; see 'rota context list'.",
    complete=complete.contexts,
)


@dataclass(frozen=True, slots=True)
class ContextFlags:
    """The flags of `rota context add`."""

    name: str
    url: str
    token: str
    token_file: str
    is_kubernetes: bool
    kubeconfig: str
    kube_context: str
    allows_plain_http: bool
    as_json: bool


def _text(flag: str, *, metavar: str, text: str) -> CommandOption:
    name = flag.removeprefix("--").replace("-", "_")
    return CommandOption(flag, name=name, metavar=metavar, text=text, parse=str, default="")


@command(
    "add",
    CommandArgument("name", metavar="NAME", text="Name of the context."),
    CommandArgument("url", metavar="URL", text="Address of the daemon: https://HOST:PORT."),
    _text("--token", metavar="-", text="Read the token from stdin."),
    _text("--token-file", metavar="FILE", text="Read the token from FILE on each use."),
    flag("--kubernetes", name="is_kubernetes", text="Use the token of the kubeconfig."),
    _text("--kubeconfig", metavar="FILE", text="Kubeconfig (default: kubectl's)."),
    _text("--kube-context", metavar="NAME", text="Kubeconfig context (default: current)."),
    flag(
        "--plain-http",
        name="allows_plain_http",
        text="Send the token without TLS: it can be read and stolen on the way.",
    ),
    JSON,
    epilog="Example: rota context add lab https://rota.lab:7600 --token-file lab.token",
)
def add(**values: Any) -> None:
    """Add a context for a daemon. Only you can read the stored token."""
    from rota.cli.output.contexts import print_contexts
    from rota.client import contexts

    flags = ContextFlags(**values)
    contexts.check_name(flags.name)
    found = _context(flags)
    found.secret()  # A missing token file is reported now, and not at the first use.
    contexts.add(flags.name, replace(found, url=_with_fingerprint(found.url)))
    if flags.as_json:
        print_contexts({flags.name: found}, current="", as_json=True)
    else:
        print_out(f"context '{flags.name}' added; 'rota context use {flags.name}' selects it")


def _context(flags: ContextFlags) -> Context:
    from rota.client.contexts import Context

    is_kubernetes = flags.is_kubernetes or bool(flags.kubeconfig or flags.kube_context)
    if sum(map(bool, (flags.token, flags.token_file, is_kubernetes))) > 1:
        hint = "give one of --token, --token-file and --kubernetes"
        raise UserError("a context takes only one source of its token", hint)
    return Context(
        url=_address(flags.url, allows_plain_http=flags.allows_plain_http),
        token=_read_token(flags.token),
        token_file=_absolute(flags.token_file),
        is_kubernetes=is_kubernetes,
        kubeconfig=_absolute(flags.kubeconfig),
        kube_context=flags.kube_context,
        allows_plain_http=flags.allows_plain_http,
    )


def _address(url: str, *, allows_plain_http: bool) -> str:
    from rota.client.endpoint import parse
    from rota.client.http import check_url

    check_url(parse(url, "URL"))
    url = url.removesuffix("/")
    if url.startswith("http://") and not allows_plain_http:
        raise UserError(
            f"{url} is not encrypted: other users could read your token, or answer for the daemon",
            "use the https URL that 'rota status' shows on the daemon's machine, or --plain-http",
        )
    return url


def _with_fingerprint(url: str) -> str:
    """The URL, with the fingerprint of its certificate if no authority has signed it."""
    from rota.client.endpoint import NoDaemonError, parse
    from rota.client.http import certificate_fingerprint

    if not url.startswith("https://") or "#" in url:
        return url
    try:
        fingerprint = certificate_fingerprint(parse(url, "URL"))
    except NoDaemonError:  # The first use checks the certificate.
        return url
    return _confirmed(f"{url}#sha256={fingerprint}") if fingerprint else url


def _confirmed(url: str) -> str:
    """The URL with a fingerprint that the daemon of this machine confirms, or the user."""
    if _own_daemon_address() == url:
        return url
    plain, _, fingerprint = url.partition("#")
    print_err(f"no authority that this machine trusts has signed the certificate of {plain}")
    print_err(f"its fingerprint is {fingerprint}; compare it with 'rota status' on that machine")
    if not sys.stdin.isatty():
        raise UserError(f"the certificate of {plain} is not trusted", f"add it as '{url}'")
    if input("trust this certificate? [y/N] ").strip().lower() not in ("y", "yes"):
        raise UserError("the context was not added")
    return url


def _own_daemon_address() -> str:
    """The TCP address of the daemon of this machine, which its Unix socket tells; empty if it has
    none."""
    from rota.client import Client
    from rota.config.paths import LOCAL
    from rota.errors import RotaError

    try:
        with Client(context=LOCAL) as rota:
            return rota.status().address
    except RotaError:
        return ""


def _absolute(path: str) -> str:
    return str(Path(path).absolute()) if path else ""


def _read_token(value: str) -> str:
    from rota.client.contexts import LONGEST_TOKEN, checked_token

    if not value:
        return ""
    if value != "-":
        what = "every user of this machine can read a token on the command line"
        raise UserError(what, "use --token - and type it, or --token-file")
    if sys.stdin.isatty():
        from getpass import getpass

        return checked_token(getpass("token: ").strip(), "the typed token")
    text = sys.stdin.buffer.read(LONGEST_TOKEN + 2).decode("ascii", errors="replace")
    return checked_token(text.strip(), "standard input")


@command("use", NAME, JSON)
def use(*, name: str, as_json: bool) -> None:
    """Select the daemon that commands contact. 'local' is this machine's daemon."""
    from rota.cli.output.console import print_json
    from rota.client import contexts
    from rota.client.endpoint import chosen

    contexts.use(name)
    variable = chosen().origin
    if variable.startswith("ROTA_"):
        print_err(f"commands do not use '{name}' yet: {variable} is set and comes first; unset it")
    if as_json:
        print_json({"current": name})
    elif not variable.startswith("ROTA_"):
        print_out(f"commands now use '{name}'; --context NAME uses another one once")


@command("list", JSON)
def list_contexts(*, as_json: bool) -> None:
    """List your contexts. Tokens are not shown."""
    from rota.cli.output.contexts import print_contexts
    from rota.client import contexts

    known = contexts.read()
    if not known.contexts and not as_json:
        print_err("you have no contexts; 'rota context add NAME URL' adds one")
    else:
        print_contexts(known.contexts, current=known.current, as_json=as_json)


@command("show", JSON)
def show(*, as_json: bool) -> None:
    """Show the daemon that commands contact, and what selected it."""
    from rota.cli.output.console import print_json
    from rota.client.endpoint import chosen

    found = chosen()
    if as_json:
        print_json(asdict(found))
    else:
        print_out(f"{found.context or found.url}, set by {found.origin}")


@command("remove", NAME, JSON)
def remove(*, name: str, as_json: bool) -> None:
    """Remove a context and its token."""
    from rota.cli.output.console import print_json
    from rota.client import contexts

    was_current = contexts.remove(name)
    if as_json:
        print_json({"removed": name, "was_current": was_current})
    elif was_current:
        print_out("commands now use the daemon of this machine")


COMMANDS = (add, use, list_contexts, show, remove)
