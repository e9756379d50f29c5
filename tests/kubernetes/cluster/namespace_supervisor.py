"""The process outside a cluster's namespaces: it creates them, waits for their end, and cleans up.

If this process dies, the kernel kills the first process of the namespaces. The next start or
stop of any cluster removes the folders and control groups that remain.
"""

import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from tests.kubernetes.cluster.file_locks import held
from tests.kubernetes.cluster.layout import PROJECT, ClusterLayout, ClusterNetwork, clusters

N_NETWORKS = 256
LOGS_KEPT_S = 24 * 3600.0
NAMESPACES = (
    *("setpriv", "--pdeathsig", "KILL"),
    *("unshare", "--net", "--mount", "--pid", "--mount-proc", "--propagation", "slave"),
    *("--fork", "--kill-child=KILL"),
)
INIT_PROCESS = ("-m", "tests.kubernetes.cluster.init_process")


def supervise(place: ClusterLayout) -> None:
    keeper = subprocess.Popen(
        [*NAMESPACES, sys.executable, *INIT_PROCESS, str(place.folder)],
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
        clean_up(place)


def first_child(pid: int) -> int:
    """The first process in the namespaces."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    while not (found := children.read_text().split()):
        time.sleep(0.01)
    return int(found[0])


def connect(pid: int) -> ClusterNetwork:
    """A virtual cable between the machine and the network namespace; it disappears with either
    end."""
    for number in range(N_NETWORKS):
        network = ClusterNetwork(number)
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


def clean_up_all() -> None:
    """Remove what clusters with a killed supervisor left, and old logs."""
    for folder in clusters().glob("*/"):
        place = ClusterLayout(folder.name)
        if folder.name == "locks" or not (lock := held(place.lock("warden"))):
            continue
        with lock:
            clean_up(place)
            if time.time() - folder.stat().st_mtime > LOGS_KEPT_S:
                shutil.rmtree(folder)


def clean_up(place: ClusterLayout) -> None:
    """Remove everything of an ended cluster except its logs. Its mounts are not visible here."""
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
    # This process inherits the open lock of the cluster's name and holds it until it exits.
    supervise(ClusterLayout(sys.argv[1]))


CGROUPS = Path("/sys/fs/cgroup")
PATIENCE_S = 10.0


def cgroups(containers: Iterable[str]) -> list[Path]:
    """In every hierarchy of cgroup v1, or in the only one of v2."""
    patterns = ("*/k8s.io", "k8s.io")
    parents = [path for pattern in patterns for path in CGROUPS.glob(pattern)]
    folders = [parent / container for parent in parents for container in containers]
    return [folder for folder in folders if folder.is_dir()]


def remove_cgroups(containers: Iterable[str]) -> None:
    until = time.monotonic() + PATIENCE_S
    for root in cgroups(containers):
        for folder in (*sorted(root.rglob("*/"), reverse=True), root):
            remove(folder, until=until)


def remove(folder: Path, *, until: float) -> None:
    """A group with dying processes is busy for a moment."""
    while True:
        try:
            folder.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


if __name__ == "__main__":
    main()
