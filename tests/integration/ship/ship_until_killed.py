"""Ships and unpacks until it is killed: `python -m ...ship_until_killed FOLDER ROOT`."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

from rota.client.shipping import ship
from rota.daemon.artifacts.snapshots import Snapshots
from tests.support.shipping import UID, DirectApi


def main(folder: str, root: str) -> None:
    snapshots = Snapshots(Path(root))
    api = DirectApi(snapshots)
    for number in itertools.count():
        (Path(folder) / "version").write_text(f"{number}")
        snapshot_id = ship(Path(folder), api)
        sys.stdout.write(f"{snapshot_id}\n")
        sys.stdout.flush()
        snapshots.unpack(snapshot_id, job_id="job", owner=UID, gid=UID)
        if number % 3 == 2:
            snapshots.prune([(UID, snapshot_id)], unused_s=-1)
            sys.stdout.write("pruned\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
