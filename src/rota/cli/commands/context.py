"""`rota context`: which daemons there are to talk to, and which one is meant."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rota.cli import completing
from rota.cli.flags import option, takes
from rota.cli.options import AsJson
from rota.cli.output.lines import complain, say
from rota.errors import UserError

if TYPE_CHECKING:
    from rota.client.contexts import Context

app = typer.Typer(help="Name the daemons that you work with, and choose one of them.")

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="As in 'rota context list'.",
        show_default=False,
        autocompletion=completing.contexts,
    ),
]


@dataclass(frozen=True, slots=True)
class Flags:
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="What to call it.", show_default=False)
    ]
    url: Annotated[str, typer.Argument(metavar="URL", help="https://HOST:PORT", show_default=False)]
    token: Annotated[str, option("--token", metavar="-", words="Read the token from stdin.")] = ""
    token_file: Annotated[
        str, option("--token-file", metavar="FILE", words="Read it from there, each time.")
    ] = ""
    is_kubernetes: Annotated[
        bool, typer.Option("--kubernetes", help="Show the token that kubectl would.")
    ] = False
    kubeconfig: Annotated[
        str, option("--kubeconfig", metavar="FILE", words="Else the one that kubectl reads.")
    ] = ""
    kube_context: Annotated[
        str, option("--kube-context", metavar="NAME", words="Else its current context.")
    ] = ""
    as_json: AsJson = False


@app.command(epilog="Example: rota context add lab https://rota.lab:7600 --token-file lab.token")
@takes(Flags)
def add(flags: Flags) -> None:
    """Name a daemon. Its token is kept in your configuration folder, for your eyes only."""
    from rota.cli.output.contexts import say_contexts
    from rota.client import contexts

    contexts.check_name(flags.name)
    found = _context(flags)
    # A file that is not there is told now, not when it is needed.
    if found.secret() and _is_open(found.url):
        complain(f"the token goes to {found.url} unencrypted; https is safer")
    contexts.add(flags.name, found)
    if flags.as_json:
        say_contexts({flags.name: found}, current="", as_json=True)
    else:
        say(f"'rota context use {flags.name}' lets commands talk to it")


def _context(flags: Flags) -> Context:
    from rota.client.contexts import Context

    is_kubernetes = flags.is_kubernetes or bool(flags.kubeconfig or flags.kube_context)
    if sum(map(bool, (flags.token, flags.token_file, is_kubernetes))) > 1:
        hint = "give --token, --token-file or --kubernetes"
        raise UserError("a token can come from one place only", hint)
    return Context(
        url=_address(flags.url),
        token=_told(flags.token),
        token_file=_absolute(flags.token_file),
        is_kubernetes=is_kubernetes,
        kubeconfig=_absolute(flags.kubeconfig),
        kube_context=flags.kube_context,
    )


def _address(url: str) -> str:
    from rota.client.find import parse
    from rota.client.wires import check

    check(parse(url, "URL"))
    return url.removesuffix("/")


def _absolute(path: str) -> str:
    return str(Path(path).absolute()) if path else ""


def _told(word: str) -> str:
    from rota.client.contexts import LONGEST_TOKEN, checked_token

    if not word:
        return ""
    if word != "-":
        what = "a token on the command line can be read by everybody on this machine"
        raise UserError(what, "use --token - and type it, or --token-file")
    if sys.stdin.isatty():
        from getpass import getpass

        return checked_token(getpass("token: ").strip(), "what you typed")
    text = sys.stdin.buffer.read(LONGEST_TOKEN + 2).decode("ascii", errors="replace")
    return checked_token(text.strip(), "standard input")


def _is_open(url: str) -> bool:
    """Whether others on the way could read what is sent."""
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    return parts.scheme == "http" and parts.hostname not in ("127.0.0.1", "::1", "localhost")


@app.command()
def use(name: Name, *, as_json: AsJson = False) -> None:
    """Let commands talk to this daemon from now on. 'local' is the one of this machine."""
    from rota.cli.output.json import say_json
    from rota.client import contexts

    contexts.use(name)
    if as_json:
        say_json({"current": name})
    else:
        say(f"commands talk to '{name}' now; --context NAME asks another")


@app.command(name="list")
def list_contexts(*, as_json: AsJson = False) -> None:
    """Show your contexts. Nobody sees tokens."""
    from rota.cli.output.contexts import say_contexts
    from rota.client import contexts

    known = contexts.read()
    if not known.contexts and not as_json:
        complain("you have no contexts; 'rota context add NAME URL' makes one")
    else:
        say_contexts(known.contexts, current=known.current, as_json=as_json)


@app.command()
def show(*, as_json: AsJson = False) -> None:
    """Say which daemon commands talk to, and what chose it."""
    from rota.cli.output.json import say_json
    from rota.client.find import chosen

    found = chosen()
    if as_json:
        say_json(asdict(found))
    else:
        say(f"{found.context or found.url}, by {found.origin}")


@app.command()
def remove(name: Name, *, as_json: AsJson = False) -> None:
    """Forget a context, and its token."""
    from rota.cli.output.json import say_json
    from rota.client import contexts

    was_current = contexts.remove(name)
    if as_json:
        say_json({"removed": name, "was_current": was_current})
    elif was_current:
        say("commands talk to the daemon of this machine now")
