"""Starts a cluster, joins one that is there, and ends it."""

import os
import re
import shutil
import subprocess
import sys
from contextlib import ExitStack, closing, suppress
from pathlib import Path

from tests.kubernetes.cluster import images, parts, settings
from tests.kubernetes.cluster.api import Api, until
from tests.kubernetes.cluster.compiling import find_or_build
from tests.kubernetes.cluster.control import Control, KeeperError
from tests.kubernetes.cluster.locks import held, locked
from tests.kubernetes.cluster.nodes import has_cards, import_images, node_files, write_all
from tests.kubernetes.cluster.people import ADMINISTRATOR, everybody, token_file
from tests.kubernetes.cluster.places import FIRST, PROJECT, Network, Place, clusters
from tests.kubernetes.cluster.warden import sweep_all

KEEPER_LIMIT_S = 60.0
END_LIMIT_S = 30.0
READY_LIMIT_S = 180.0
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")
LOG_TAIL = 15
WARDEN = "tests.kubernetes.cluster.warden"


class StartError(Exception):
    """A cluster did not start; the message has the last lines of the logs."""


def join_or_start(name: str) -> Control:
    """A line to the cluster with this name, which is there as long as somebody has one."""
    if not NAME.fullmatch(name):
        raise ValueError(f"a cluster's name is {NAME.pattern}, not {name!r}")
    place = Place(name)
    with locked(place.lock("start")):
        return join(place) or start(place)


def join(place: Place) -> Control | None:
    try:
        control = Control(place.socket)
        if place.ready.exists() and control.running():
            return control
        control.close()
    except OSError:
        pass
    return None


def start(place: Place) -> Control:
    binaries = find_or_build()
    sweep_all()
    start_warden(place)
    with ExitStack() as on_failure:
        try:
            control = until(lambda: connected(place), "the keeper", limit_s=KEEPER_LIMIT_S)
            on_failure.callback(control.close)
            start_parts(place, control, binaries=binaries)
        except (OSError, subprocess.CalledProcessError) as error:
            message = f"cluster {place.name} did not start: {error}\n{tails(place)}"
            raise StartError(message) from error
        place.ready.touch()
        on_failure.pop_all()
    return control


def start_warden(place: Place) -> None:
    """The warden inherits the lock that says that this place is taken."""
    lock = held(place.lock("warden"), patience_s=END_LIMIT_S)
    if lock is None:
        raise StartError(f"the cluster {place.name} before this one does not end")
    with lock:
        shutil.rmtree(place.folder, ignore_errors=True)
        place.of("keeper").mkdir(parents=True)
        with place.log("keeper").open("wb") as log:
            # It outlives us, so it is no child of ours.
            subprocess.run(
                ["setsid", "--fork", sys.executable, "-m", WARDEN, place.name],
                cwd=PROJECT,
                env=os.environ | {"PYTHONPATH": str(PROJECT)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[lock.fileno()],
                check=True,
            )


def connected(place: Place) -> Control | None:
    return Control(place.socket) if place.socket.exists() else None


def start_parts(place: Place, control: Control, *, binaries: dict[str, Path]) -> None:
    network = Network(int(place.network.read_text()))
    write_files(place, network)
    first = parts.control_plane(place, network, binaries=binaries)
    rest = parts.others(place, network, binaries=binaries)
    start_all(control, first)
    images.write_all(place.of("containerd"))
    import_images(place, control)
    # Its certificate, which the others need, is made when it starts.
    api = until(lambda: api_of(place), "the API server", limit_s=READY_LIMIT_S)
    until(lambda: api.text("/readyz") == "ok", "the API server", limit_s=READY_LIMIT_S)
    start_all(control, rest)
    until(lambda: has_cards(api, FIRST), f"node {FIRST.node} with its cards", limit_s=READY_LIMIT_S)


def start_all(control: Control, wanted: dict[str, parts.Part]) -> None:
    for name, part in wanted.items():
        control.start(name, part)


def write_files(place: Place, network: Network) -> None:
    people = everybody()
    key = place.of("apiserver") / "accounts.key"
    files = {
        "apiserver/tokens.csv": token_file(people),
        **node_files(place, network, post=FIRST, token=people["kubelet"].token),
        "proxy/config.json": settings.proxy(place, network),
        "scheduler/config.json": settings.scheduler(place),
        "kubeconfig": settings.kubeconfig(place, network, token=people[ADMINISTRATOR].token),
    }
    for part in ("controller-manager", "kwok", "proxy", "scheduler"):
        token = people[part].token
        files[f"{part}/kubeconfig"] = settings.kubeconfig(place, network, token=token)
    write_all(place, files)
    subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)


def api_of(place: Place) -> Api | None:
    certificate = place.of("apiserver") / "certificates" / "apiserver.crt"
    return Api(place.kubeconfig) if certificate.exists() else None


def tails(place: Place) -> str:
    """The end of every log, for the message of a failure."""
    shown = [
        f"--- {path}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-LOG_TAIL:])
        for path in sorted(place.folder.glob("*/log"))
        if path.is_file()
    ]
    return "\n".join(shown)


def leave(place: Place, control: Control) -> None:
    """Closes the line; who closes the last one waits until nothing of the cluster is left."""
    with locked(place.lock("start")):
        is_last = control.is_only_hold()
        control.close()
        if is_last:
            wait_for_end(place)


def end(name: str) -> bool:
    """Ends the cluster, whoever holds it, and waits until nothing of it is left."""
    place = Place(name)
    try:
        control = Control(place.socket)
    except OSError:
        sweep_all()
        return False
    with closing(control), suppress(KeeperError):
        control.down()
    wait_for_end(place)
    return True


def wait_for_end(place: Place) -> None:
    lock = held(place.lock("warden"), patience_s=END_LIMIT_S)
    if lock is None:
        raise StartError(f"cluster {place.name} did not end within {END_LIMIT_S:.0f} s")
    lock.close()


def names() -> list[str]:
    """Of the clusters that can be used."""
    return sorted(path.parent.name for path in clusters().glob("*/ready"))
