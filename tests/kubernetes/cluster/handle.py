"""A running cluster, as tests use it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

from tests.kubernetes.cluster import config_files, nodes
from tests.kubernetes.cluster.api import Api, Object, RefusedError, until
from tests.kubernetes.cluster.control import Control
from tests.kubernetes.cluster.images import PYTHON, host_folders
from tests.kubernetes.cluster.kwok_nodes import fake_nodes
from tests.kubernetes.cluster.layout import SECOND, ClusterLayout, ClusterNetwork
from tests.kubernetes.cluster.users import N_USERS, read_token, user_name


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster given by the user has no parts that tests could stop, and no layout."""

    kubeconfig: Path
    api: Api
    ours: tuple[ClusterLayout, Control] | None = None

    @property
    def control(self) -> Control:
        assert self.ours, "parts of a given cluster are not stopped"
        return self.ours[1]

    @property
    def place(self) -> ClusterLayout:
        assert self.ours, "a given cluster is somewhere else"
        return self.ours[0]

    @property
    def network(self) -> ClusterNetwork:
        return ClusterNetwork(int(self.place.network.read_text()))

    @contextmanager
    def namespace(self) -> Iterator[str]:
        """A new namespace; at the end its pods are deleted and their GPUs are free."""
        name = f"test-{token_hex(4)}"
        path = f"/api/v1/namespaces/{name}"
        self.api.create("/api/v1/namespaces", {"metadata": {"name": name}})
        # Pods are rejected until a controller has created the account.
        until(lambda: self.api.get(f"{path}/serviceaccounts/default"), f"the account of {name}")
        try:
            yield name
        finally:
            remove_pods(self.api, f"{path}/pods")
            self.api.delete(path)

    @contextmanager
    def kwok_nodes(self, n: int, gpus: int = 8) -> Iterator[list[str]]:
        with fake_nodes(self.api, n, gpus=gpus, prefix=f"fake-{token_hex(2)}") as names:
            yield names

    @contextmanager
    def second_node(self) -> Iterator[str]:
        """A second node with its own kubelet and as many GPUs as the first; removed at the end."""
        with nodes.second_node(self.api, self.place, control=self.control):
            yield SECOND.node

    def person(self) -> tuple[str, Path]:
        """A user without permissions, for this test only: name and kubeconfig."""
        tokens = (self.place.of("apiserver") / "tokens.csv").read_text()
        for name in map(user_name, range(N_USERS)):
            path = self.place.of("people") / name
            path.parent.mkdir(exist_ok=True)
            try:
                path.touch(mode=0o600, exist_ok=False)
            except FileExistsError:
                continue
            token = read_token(tokens, name)
            path.write_text(config_files.kubeconfig(self.place, self.network, token=token))
            return name, path
        raise LookupError(f"all {N_USERS} people of this cluster are taken")


def remove_pods(api: Api, path: str) -> None:
    """Including pods with finalizers."""
    for pod in api.items(path):
        name = pod["metadata"]["name"]
        if pod["metadata"].get("finalizers"):
            ignoring_gone(api, f"{path}/{name}")
        api.delete(f"{path}/{name}", grace_s=1)
    until(lambda: not api.items(path), f"{path} to be empty")


def ignoring_gone(api: Api, path: str) -> None:
    try:
        api.patch(path, {"metadata": {"finalizers": None}})
    except RefusedError as error:
        if error.code != 404:
            raise


def python_pod(
    name: str, program: str, *, gpus: int = 0, resource: str = "nvidia.com/gpu"
) -> Object:
    """A pod of the test image that runs a program with the project's Python."""
    folders = {f"host-{index}": folder for index, folder in enumerate(host_folders())}
    limits: dict[str, Any] = {resource: str(gpus)} if gpus else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "main",
                    "image": PYTHON,
                    "imagePullPolicy": "Never",
                    "args": ["-c", program],
                    "resources": {"limits": limits},
                    "volumeMounts": [
                        {"name": key, "mountPath": folder, "readOnly": True}
                        for key, folder in folders.items()
                    ],
                }
            ],
            "volumes": [
                {"name": key, "hostPath": {"path": folder}} for key, folder in folders.items()
            ],
        },
    }
