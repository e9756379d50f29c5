"""`rota token`: creates, lists and revokes tokens of the daemon's HTTP API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.cli.command import CommandArgument, CommandOption, command, decimal
from rota.cli.options import JSON
from rota.cli.output.console import print_err, print_out
from rota.errors import UserError, did_you_mean, shown

if TYPE_CHECKING:
    from rota.wire.daemon import TokenView

HELP = "Create, list and revoke tokens of the HTTP API."

SCOPES = ("user", "read_only")


@command(
    "create",
    CommandOption(
        "--user",
        "-u",
        name="user",
        metavar="NAME",
        text="For this user (default: you); administrators only.",
        parse=str,
        default="",
    ),
    CommandOption(
        "--scope",
        name="scope",
        metavar="SCOPE",
        text="'user' for all rights of the user (default), or 'read_only'.",
        parse=str,
        default="user",
    ),
    CommandOption(
        "--days",
        name="days",
        metavar="N",
        text="Days until it expires (default: never).",
        parse=decimal,
    ),
    JSON,
)
def create(*, user: str, scope: str, days: float | None, as_json: bool) -> None:
    """Create a token and print its secret once. Set ROTA_TOKEN to the secret to use it."""
    from rota.cli.output.console import print_json
    from rota.cli.output.contexts import token_object
    from rota.client import Client

    if scope not in SCOPES:
        hint = did_you_mean(scope, SCOPES) or f"the scopes are {', '.join(SCOPES)}"
        raise UserError(f"unknown scope '{shown(scope)}'", hint)
    if days is not None and not days > 0:
        raise UserError(f"--days {days:g} is not above 0", "use a number above 0")
    with Client() as rota:
        created = rota.create_token(user=user, scope=scope, days=days)
    if as_json:
        print_json(token_object(created))
        return
    # Only the secret goes to stdout, so that a script can store it in a file or a variable.
    print_out(created.secret)
    print_err(f"created token {created.id} of {created.user}; its secret is not shown again")


@command("list", JSON)
def list_tokens(*, as_json: bool) -> None:
    """List your tokens, as an administrator those of all users. Secrets are not shown."""
    from rota.client import Client

    with Client() as rota:
        _print(rota.tokens(), as_json=as_json)


@command(
    "revoke", CommandArgument("token", metavar="ID", text="Token id; see 'rota token list'."), JSON
)
def revoke(*, token: str, as_json: bool) -> None:
    """Revoke a token. Requests with its secret are refused from now on."""
    from rota.client import Client

    with Client() as rota:
        _print([rota.revoke_token(token)], as_json=as_json)


def _print(tokens: list[TokenView], *, as_json: bool) -> None:
    from rota.cli.output.contexts import print_tokens

    print_tokens(tokens, as_json=as_json)


COMMANDS = (create, list_tokens, revoke)
