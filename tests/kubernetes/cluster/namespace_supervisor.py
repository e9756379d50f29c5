"""The process outside a cluster's namespaces: it makes them, waits for their end, and sweeps up.

The kernel kills the namespaces' first process when the warden dies. What then is left, folders and
control groups, is swept by whoever starts or stops a cluster next.
"""

import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests.kubernetes.cluster.cgroups import remove_cgroups
from tests.kubernetes.cluster.locks import held
from tests.kubernetes.cluster.places import PROJECT, Network, Place, clusters

N_NETWORKS = 256
LOGS_KEPT_S = 24 * 3600.0
NAMESPACES = (
    *("setpriv", "--pdeathsig", "KILL"),
    *("unshare", "--net", "--mount", "--pid", "--mount-proc", "--propagation", "slave"),
    *("--fork", "--kill-child=KILL"),
)
KEEPER = ("-m", "tests.kubernetes.cluster.keeper")


def watch_over(place: Place) -> None:
    keeper = subprocess.Popen(
        [*NAMESPACES, sys.executable, *KEEPER, str(place.folder)],
        cwd=PROJECT,
        stdin=subprocess.PIPE,
        text=True,
    )
    try:
        network = connect(first_child(keeper.pid))
        place.network.write_text(str(network.number))
        assert keeper.stdin
        keeper.stdin.write("the network is there\n")
        keeper.stdin.flush()
        keeper.wait()
    finally:
        keeper.kill()
        keeper.wait()
        sweep(place)


def first_child(pid: int) -> int:
    """Of the process that made the namespaces: the first process in them."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    while not (found := children.read_text().split()):
        time.sleep(0.01)
    return int(found[0])


def connect(pid: int) -> Network:
    """A cable between this machine and the namespace of that process; it vanishes with either."""
    for number in range(N_NETWORKS):
        network = Network(number)
        cable = ("link", "add", network.link, "type", "veth", "peer", "name", "eth0")
        if ip(*cable, "netns", str(pid), check=False):
            break
    else:
        raise RuntimeError(f"none of {N_NETWORKS} networks is free; end some clusters first")
    ip("addr", "add", f"{network.host}/{network.link_bits}", "dev", network.link)
    ip("link", "set", network.link, "up")
    ip("route", "add", network.pods, "via", network.node)
    inside = ("nsenter", "--net", "--target", str(pid), "--")
    ip("link", "set", "lo", "up", inside=inside)
    ip("addr", "add", f"{network.node}/{network.link_bits}", "dev", "eth0", inside=inside)
    ip("link", "set", "eth0", "up", inside=inside)
    return network


def ip(*arguments: str, inside: tuple[str, ...] = (), check: bool = True) -> bool:
    done = subprocess.run([*inside, "ip", *arguments], capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise RuntimeError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.returncode == 0


def sweep_all() -> None:
    """Removes what clusters left whose warden was killed, and logs that nobody came for."""
    for folder in clusters().glob("*/"):
        place = Place(folder.name)
        if folder.name == "locks" or not (lock := held(place.lock("warden"))):
            continue
        with lock:
            sweep(place)
            if time.time() - folder.stat().st_mtime > LOGS_KEPT_S:
                shutil.rmtree(folder)


def sweep(place: Place) -> None:
    """Of a cluster that has ended, only the logs stay. No mount of it is visible out here."""
    remove_cgroups(place.containers)
    for each in place.folder.iterdir():
        if not each.is_dir():
            each.unlink()
        elif not (each / "log").is_file():
            shutil.rmtree(each)
        else:
            keep_only_log(each)


def keep_only_log(folder: Path) -> None:
    for each in folder.iterdir():
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each)
        elif each.name != "log":
            each.unlink()


def main() -> None:
    # Whoever started us left the lock of this place open in here, so that it is ours till we end.
    watch_over(Place(sys.argv[1]))


if __name__ == "__main__":
    main()
