"""A process with its own small disk: `python -m ...ship_on_full_disk FOLDER OWNER`.

Runs in a mount namespace, and ships for the uid OWNER until the disk is full, at every step that
can fail. Each line on stdout is a guarantee that held; the test compares all lines.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from rota.client.shipping import ship
from rota.daemon.artifacts.snapshots import Snapshots
from rota.errors import UnavailableError
from tests.support.shipping import DirectApi, names_in, tree_of

MIB = 1024**2


def main(folder: str, uid: str) -> None:
    owner = int(uid)
    code, disk = Path(folder, "code"), Path(folder, "disk")
    for each in (code, disk):
        each.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={4 * MIB}", "tmpfs", disk], check=True)
    snapshots = Snapshots(disk / "kept")
    api, filler = DirectApi(snapshots, owner), disk / "filler"

    (code / "large").write_bytes(bytes(MIB))
    filler.write_bytes(bytes(7 * MIB // 2))
    tell(refusal_to_ship(code, api))
    tell(str(names_in(disk / "kept")))
    filler.write_bytes(bytes(2 * MIB))
    snapshot_id = ship(code, api)
    tell("goes on")

    filler.write_bytes(bytes(5 * MIB // 2))
    before, used_bytes = names_in(disk / "kept"), snapshots.used_bytes(owner=owner)
    try:
        snapshots.unpack(snapshot_id, job_id="job", owner=owner, gid=owner)
    except UnavailableError as error:
        tell(f"unpack: {error.hint}")
    is_clean = before == names_in(disk / "kept") and snapshots.used_bytes(owner=owner) == used_bytes
    tell("nothing half-made" if is_clean else f"left {names_in(disk / 'kept')}")
    filler.unlink()
    tree = snapshots.unpack(snapshot_id, job_id="job", owner=owner, gid=owner)
    tell("unpacked" if tree_of(tree) == tree_of(code) else "another tree")

    # In a user namespace, the options of the mount name a uid that `mount` cannot map: ignore them.
    subprocess.run(["mount", "--options-mode", "ignore", "-o", "remount,ro", disk], check=True)
    (code / "small").touch()
    tell(refusal_to_ship(code, api))


def refusal_to_ship(code: Path, api: DirectApi) -> str:
    try:
        return ship(code, api)
    except UnavailableError as error:
        return f"ship: {error.hint}"


def tell(sentence: str) -> None:
    sys.stdout.write(f"{sentence}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
