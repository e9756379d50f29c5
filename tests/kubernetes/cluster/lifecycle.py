"""Start a cluster, join a running one, and end it."""

import os
import re
import shutil
import subprocess
import sys
from contextlib import ExitStack, closing, suppress
from pathlib import Path

from tests.kubernetes.cluster import components, config_files, images
from tests.kubernetes.cluster.api import Api, until
from tests.kubernetes.cluster.binaries import find_or_build
from tests.kubernetes.cluster.control import Control, InitProcessError
from tests.kubernetes.cluster.file_locks import held, locked
from tests.kubernetes.cluster.layout import FIRST, PROJECT, ClusterLayout, ClusterNetwork, clusters
from tests.kubernetes.cluster.namespace_supervisor import clean_up_all
from tests.kubernetes.cluster.nodes import has_cards, import_images, node_files, write_all
from tests.kubernetes.cluster.users import ADMINISTRATOR, all_users, token_file

INIT_PROCESS_LIMIT_S = 60.0
END_LIMIT_S = 30.0
READY_LIMIT_S = 180.0
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")
LOG_TAIL = 15
SUPERVISOR = "tests.kubernetes.cluster.namespace_supervisor"


class StartError(Exception):
    """A cluster did not start; the message has the last lines of the logs."""


def join_or_start(name: str) -> Control:
    """A connection to the cluster of this name. The cluster runs as long as a connection is
    open."""
    if not NAME.fullmatch(name):
        raise ValueError(f"a cluster's name is {NAME.pattern}, not {name!r}")
    place = ClusterLayout(name)
    with locked(place.lock("start")):
        return join(place) or start(place)


def join(place: ClusterLayout) -> Control | None:
    try:
        control = Control(place.socket)
        if place.ready.exists() and control.running():
            return control
        control.close()
    except OSError:
        pass
    return None


def start(place: ClusterLayout) -> Control:
    binaries = find_or_build()
    clean_up_all()
    start_supervisor(place)
    with ExitStack() as on_failure:
        try:
            control = until(lambda: connected(place), "the keeper", limit_s=INIT_PROCESS_LIMIT_S)
            on_failure.callback(control.close)
            start_parts(place, control, binaries=binaries)
        except (OSError, subprocess.CalledProcessError) as error:
            message = f"cluster {place.name} did not start: {error}\n{tails(place)}"
            raise StartError(message) from error
        place.ready.touch()
        on_failure.pop_all()
    return control


def start_supervisor(place: ClusterLayout) -> None:
    """The supervisor inherits the lock of the cluster's name."""
    lock = held(place.lock("warden"), patience_s=END_LIMIT_S)
    if lock is None:
        raise StartError(f"the cluster {place.name} before this one does not end")
    with lock:
        shutil.rmtree(place.folder, ignore_errors=True)
        place.of("keeper").mkdir(parents=True)
        with place.log("keeper").open("wb") as log:
            # The supervisor outlives this process, so it is not a child.
            subprocess.run(
                ["setsid", "--fork", sys.executable, "-m", SUPERVISOR, place.name],
                cwd=PROJECT,
                env=os.environ | {"PYTHONPATH": str(PROJECT)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[lock.fileno()],
                check=True,
            )


def connected(place: ClusterLayout) -> Control | None:
    return Control(place.socket) if place.socket.exists() else None


def start_parts(place: ClusterLayout, control: Control, *, binaries: dict[str, Path]) -> None:
    network = ClusterNetwork(int(place.network.read_text()))
    write_files(place, network)
    first = components.control_plane(place, network, binaries=binaries)
    rest = components.others(place, network, binaries=binaries)
    start_all(control, first)
    images.write_all(place.of("containerd"))
    import_images(place, control)
    # It creates its certificate, which the others need, when it starts.
    api = until(lambda: api_of(place), "the API server", limit_s=READY_LIMIT_S)
    until(lambda: api.text("/readyz") == "ok", "the API server", limit_s=READY_LIMIT_S)
    start_all(control, rest)
    until(lambda: has_cards(api, FIRST), f"node {FIRST.node} with its cards", limit_s=READY_LIMIT_S)


def start_all(control: Control, wanted: dict[str, components.Component]) -> None:
    for name, part in wanted.items():
        control.start(name, part)


def write_files(place: ClusterLayout, network: ClusterNetwork) -> None:
    people = all_users()
    key = place.of("apiserver") / "accounts.key"
    files = {
        "apiserver/tokens.csv": token_file(people),
        **node_files(place, network, post=FIRST, token=people["kubelet"].token),
        "proxy/config.json": config_files.proxy(place, network),
        "scheduler/config.json": config_files.scheduler(place),
        "kubeconfig": config_files.kubeconfig(place, network, token=people[ADMINISTRATOR].token),
    }
    for part in ("controller-manager", "kwok", "proxy", "scheduler"):
        token = people[part].token
        files[f"{part}/kubeconfig"] = config_files.kubeconfig(place, network, token=token)
    write_all(place, files)
    subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)


def api_of(place: ClusterLayout) -> Api | None:
    certificate = place.of("apiserver") / "certificates" / "apiserver.crt"
    return Api(place.kubeconfig) if certificate.exists() else None


def tails(place: ClusterLayout) -> str:
    """The end of every log, for an error message."""
    shown = [
        f"--- {path}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-LOG_TAIL:])
        for path in sorted(place.folder.glob("*/log"))
        if path.is_file()
    ]
    return "\n".join(shown)


def leave(place: ClusterLayout, control: Control) -> None:
    """Close the connection; after the last one, wait until nothing of the cluster is left."""
    with locked(place.lock("start")):
        is_last = control.is_only_hold()
        control.close()
        if is_last:
            wait_for_end(place)


def end(name: str) -> bool:
    """End the cluster even if others use it, and wait until nothing of it is left."""
    place = ClusterLayout(name)
    try:
        control = Control(place.socket)
    except OSError:
        clean_up_all()
        return False
    with closing(control), suppress(InitProcessError):
        control.down()
    wait_for_end(place)
    return True


def wait_for_end(place: ClusterLayout) -> None:
    lock = held(place.lock("warden"), patience_s=END_LIMIT_S)
    if lock is None:
        raise StartError(f"cluster {place.name} did not end within {END_LIMIT_S:.0f} s")
    lock.close()


def names() -> list[str]:
    """The clusters that can be used."""
    return sorted(path.parent.name for path in clusters().glob("*/ready"))
