"""`rota store`: checks, backs up and migrates the SQLite file with rota's state."""

from __future__ import annotations

from pathlib import Path

from rota.cli.command import CommandArgument, CommandOption, command, flag
from rota.cli.options import JSON
from rota.cli.output.console import print_out

HELP = "Check, back up and upgrade the file with rota's state."

FILE = CommandOption(
    "--file",
    name="file",
    metavar="FILE",
    text="Store file (default: rota.db in ROTA_HOME or in the state folder).",
    parse=Path,
)


@command("check", FILE, JSON)
def check(*, file: Path | None, as_json: bool) -> int:
    """Check the store for damage and inconsistencies. Exit code 1 if there are any. Read-only."""
    from rota.cli.output.console import print_json
    from rota.store.sqlite.check import check as find

    path = _found(file)
    problems = find(path)
    if as_json:
        print_json({"file": str(path), "problems": problems})
    else:
        print_out("\n".join(problems) if problems else f"{path}: no problems found")
    return 1 if problems else 0


@command(
    "backup",
    CommandArgument("target", metavar="TARGET", text="File to write.", parse=Path),
    FILE,
    flag("--force", name="is_forced", text="Overwrite TARGET."),
)
def backup(*, target: Path, file: Path | None, is_forced: bool) -> None:
    """Copy the store to TARGET; rota may run. To restore, stop rota and copy TARGET back."""
    from rota.store.sqlite.backup import backup as copy

    path = _found(file)
    size = copy(path, target, overwrite=is_forced)
    print_out(f"{path}: copied to {target} ({size / 1e6:.1f} MB)")


@command(
    "migrate",
    FILE,
    flag("--dry-run", name="is_dry", text="Only print the migrations that would run."),
)
def migrate(*, file: Path | None, is_dry: bool) -> None:
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


COMMANDS = (check, backup, migrate)
