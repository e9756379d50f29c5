"""`rota token`: secrets that let programs and other machines in."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from rota.cli.flags import option
from rota.cli.options import AsJson
from rota.cli.output.lines import complain, say
from rota.errors import UserError, meant, shown

if TYPE_CHECKING:
    from rota.wire.box import TokenView

app = typer.Typer(help="Make, list and revoke tokens for programs and machines.")

SCOPES = ("user", "read_only")


@app.command()
def create(
    *,
    user: Annotated[
        str, option("--user", "-u", metavar="NAME", words="For another; administrators only.")
    ] = "",
    scope: Annotated[
        str,
        typer.Option(
            "--scope", metavar="SCOPE", help="'user' may do all you may, 'read_only' may look."
        ),
    ] = "user",
    days: Annotated[
        float | None,
        option("--days", metavar="N", words="Valid so long; else until it is revoked."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a token and print its secret, this one time. Put it into ROTA_TOKEN."""
    from rota.cli.output.json import say_json
    from rota.client import Client

    if scope not in SCOPES:
        hint = meant(scope, SCOPES) or f"there are {', '.join(SCOPES)}"
        raise UserError(f"no scope '{shown(scope)}'", hint)
    if days is not None and not days > 0:
        raise UserError(f"--days {days:g} is no time", "use a number above 0")
    with Client() as rota:
        made = rota.create_token(user=user, scope=scope, days=days)
    if as_json:
        say_json(asdict(made))
        return
    # The secret alone on stdout, so that it can be put into a file or a variable.
    say(made.secret)
    complain(f"this is token {made.id} of {made.user}; its secret is not shown again")


@app.command(name="list")
def list_tokens(*, as_json: AsJson = False) -> None:
    """Show your tokens. An administrator sees everybody's, nobody sees secrets."""
    from rota.client import Client

    with Client() as rota:
        _say(rota.tokens(), as_json=as_json)


@app.command()
def revoke(
    token: Annotated[
        str, typer.Argument(metavar="ID", help="As in 'rota token list'.", show_default=False)
    ],
    *,
    as_json: AsJson = False,
) -> None:
    """End a token: whoever holds its secret is refused from now on."""
    from rota.client import Client

    with Client() as rota:
        _say([rota.revoke_token(token)], as_json=as_json)


def _say(tokens: list[TokenView], *, as_json: bool) -> None:
    from rota.cli.output.tokens import say_tokens

    say_tokens(tokens, as_json=as_json)
