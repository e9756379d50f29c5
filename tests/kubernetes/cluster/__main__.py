"""The command `scripts/cluster`."""

import argparse
import sys
import time

from tests.kubernetes.cluster.binaries import MissingError, say
from tests.kubernetes.cluster.layout import ClusterLayout
from tests.kubernetes.cluster.lifecycle import StartError, end, join_or_start, names


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/cluster", description=__doc__)
    parser.add_argument("do", choices=["up", "down", "status"])
    parser.add_argument("name", nargs="?", default="dev", help="of the cluster (dev)")
    arguments = parser.parse_args()
    try:
        return {"up": up, "down": down, "status": status}[arguments.do](arguments.name)
    except (MissingError, StartError, ValueError) as error:
        say(str(error))
        return 1


def up(name: str) -> int:
    began = time.monotonic()
    control = join_or_start(name)
    control.stay()
    control.close()
    say(
        f"cluster {name} is up after {time.monotonic() - began:.0f} s; "
        f"logs in {ClusterLayout(name).folder}"
    )
    sys.stdout.write(f"export KUBECONFIG={ClusterLayout(name).kubeconfig}\n")
    return 0


def down(name: str) -> int:
    say(f"cluster {name} is down" if end(name) else f"there was no cluster {name}")
    return 0


def status(name: str) -> int:
    say(f"clusters: {', '.join(names()) or 'none'}")
    if name not in names():
        return 1
    control = join_or_start(name)
    for part, is_running in control.running().items():
        sys.stdout.write(f"{part:20} {'running' if is_running else 'stopped'}\n")
    control.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
