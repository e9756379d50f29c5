"""`rota store`: checks, backs up and migrates the SQLite file with rota's state."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rota.cli.options import AsJson
from rota.cli.output.console import print_out

app = typer.Typer(help="Check, back up and upgrade the file with rota's state.")

File = Annotated[
    Path | None,
    typer.Option(
        "--file",
        metavar="FILE",
        help="Store file (default: rota.db in ROTA_HOME or in the state folder).",
        show_default=False,
    ),
]


@app.command()
def check(*, file: File = None, as_json: AsJson = False) -> None:
    """Check the store for damage and inconsistencies. Exit code 1 if there are any. Read-only."""
    from rota.cli.output.console import print_json
    from rota.store.sqlite.check import check as find

    path = _found(file)
    problems = find(path)
    if as_json:
        print_json({"file": str(path), "problems": problems})
    else:
        print_out("\n".join(problems) if problems else f"{path}: no problems found")
    if problems:
        raise typer.Exit(1)


@app.command()
def backup(
    target: Annotated[
        Path, typer.Argument(metavar="TARGET", help="File to write.", show_default=False)
    ],
    *,
    file: File = None,
    is_forced: Annotated[bool, typer.Option("--force", help="Overwrite TARGET.")] = False,
) -> None:
    """Copy the store to TARGET; rota may run. To restore, stop rota and copy TARGET back."""
    from rota.store.sqlite.backup import backup as copy

    path = _found(file)
    size = copy(path, target, overwrite=is_forced)
    print_out(f"{path}: copied to {target} ({size / 1e6:.1f} MB)")


@app.command()
def migrate(
    *,
    file: File = None,
    is_dry: Annotated[
        bool, typer.Option("--dry-run", help="Only print the migrations that would run.")
    ] = False,
) -> None:
    """Migrate the store to the schema of this version. 'rota up' also migrates it."""
    from rota.store.sqlite.migrate import migrate_file

    path = _found(file)
    start, steps = migrate_file(path, dry=is_dry)
    if not steps:
        print_out(f"{path}: schema {start} is current")
        return
    verb = "would migrate" if is_dry else "migrated"
    print_out(f"{path}: {verb} from schema {start} to {steps[-1].version}")
    for step in steps:
        print_out(f"  {step.version:04} {step.name.replace('_', ' ')}")


def _found(file: Path | None) -> Path:
    from rota.config.paths import store_file
    from rota.errors import UserError

    path = file or store_file()
    if not path.exists():
        hint = "give its path with --file" if file is None else "check the path"
        raise UserError(f"no store at {path}", hint)
    return path
