"""`rota store`: look after the file that rota keeps its state in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rota.cli.options import AsJson
from rota.cli.output.lines import say

app = typer.Typer(help="Check, back up and upgrade the file that holds rota's state.")

File = Annotated[
    Path | None,
    typer.Option(
        "--file",
        metavar="FILE",
        help="The store; else 'rota.db' in ROTA_HOME, or where rota keeps its state.",
        show_default=False,
    ),
]


@app.command()
def check(*, file: File = None, as_json: AsJson = False) -> None:
    """Look for damage and contradictions. Exit code 1 if there are any. Changes nothing."""
    from rota.cli.output.json import say_json
    from rota.store.check import check as find

    path = _found(file)
    problems = find(path)
    if as_json:
        say_json({"file": str(path), "problems": problems})
    else:
        say("\n".join(problems) if problems else f"{path}: nothing wrong")
    if problems:
        raise typer.Exit(1)


@app.command()
def backup(
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="The copy.", show_default=False)],
    *,
    file: File = None,
    is_forced: Annotated[bool, typer.Option("--force", help="Overwrite TARGET.")] = False,
) -> None:
    """Copy the store to TARGET while it is in use. To restore, stop rota and put the copy back."""
    from rota.store.backup import backup as copy

    path = _found(file)
    size = copy(path, target, overwrite=is_forced)
    say(f"{path}: copied to {target} ({size / 1e6:.1f} MB)")


@app.command()
def migrate(
    *,
    file: File = None,
    is_dry: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
) -> None:
    """Bring the store to the schema of this rota. `rota up` does it, too."""
    from rota.store.migrate import migrate_file

    path = _found(file)
    start, steps = migrate_file(path, dry=is_dry)
    if not steps:
        say(f"{path}: schema {start}, nothing to do")
        return
    verb = "would go" if is_dry else "went"
    say(f"{path}: {verb} from schema {start} to {steps[-1].version}")
    for step in steps:
        say(f"  {step.version:04} {step.name.replace('_', ' ')}")


def _found(file: Path | None) -> Path:
    from rota.config import store_file
    from rota.errors import UserError

    path = file or store_file()
    if not path.exists():
        hint = "name it with --file" if file is None else "check the path"
        raise UserError(f"no store at {path}", hint)
    return path
