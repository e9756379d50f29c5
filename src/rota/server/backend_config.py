"""From the settings to the place where jobs run, as the setting `engine` says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from rota.api.places import Opens, this_machine
from rota.config.load import Found, blamed
from rota.daemon.admission import Defaults
from rota.daemon.checkpoints import Checkpoints
from rota.daemon.checkpoints import parse as parse_place
from rota.daemon.identities import parse_accounts
from rota.daemon.premises import VOLUMES
from rota.engines.base import Account
from rota.engines.local.gpus import find, parse_virtual
from rota.errors import UserError, meant, shown

if TYPE_CHECKING:
    from rota.engines.kubernetes.settings import KubernetesSettings

EFFECTS = ("", "NoSchedule", "PreferNoSchedule", "NoExecute")

FLAGS_OF_OTHERS = {
    "local": {
        "kubeconfig": "--kubeconfig",
        "kube_context": "--context",
        "namespace": "--namespace",
    },
    "kubernetes": {"virtual_gpus": "--virtual-gpus"},
}
"""Settings that an engine does not look at. In a file they may stand beside each other; who gives
them as flags means another engine."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the settings say, and what was already made of some of them."""

    found: Found
    folder: Path
    listen: tuple[str, int] | None
    defaults: Callable[[str], Defaults]


def place_of(
    found: Found,
    folder: Path,
    *,
    listen: tuple[str, int] | None,
    defaults: Callable[[str], Defaults],
) -> Opens:
    engines = {"local": _local, "kubernetes": _kubernetes}
    name = found.daemon().engine
    with blamed(found.get("engine")):
        if name not in engines:
            hint = meant(name, engines) or f"use {' or '.join(engines)}"
            raise UserError(f"there is no engine '{shown(name)}'", hint)
    for key, flag in FLAGS_OF_OTHERS[name].items():
        if found.get(key).origin.startswith("--"):
            other = next(each for each in engines if each != name)
            raise UserError(f"{flag} is for --engine {other}, and this is {name}")
    return engines[name](Wanted(found, folder, listen, defaults))


def _local(wanted: Wanted) -> Opens:
    chosen = wanted.found.daemon()
    with blamed(wanted.found.get("virtual_gpus")):
        gpus = parse_virtual(chosen.virtual_gpus) if chosen.virtual_gpus else find()
    with blamed(wanted.found.get("checkpoints")):
        checkpoints = parse_place(chosen.checkpoints, folder=wanted.folder)
    return partial(this_machine, gpus=gpus, checkpoints=checkpoints)


def _kubernetes(wanted: Wanted) -> Opens:
    if find_spec("lightkube") is None:
        raise UserError("this rota cannot speak to a cluster", "install it as 'rota[kubernetes]'")
    # Only who has a cluster pays for the libraries that speak to one.
    from rota.api.cluster_place import Choice, cluster_place  # noqa: PLC0415
    from rota.daemon.ended_objects import Keep  # noqa: PLC0415

    chosen = wanted.found.daemon()
    volume = chosen.checkpoints if chosen.checkpoints.startswith(VOLUMES) else ""
    folders: Checkpoints | None = None
    with blamed(wanted.found.get("checkpoints")):
        if chosen.checkpoints and not volume:
            folders = parse_place(chosen.checkpoints, folder=wanted.folder)
    choice = Choice(
        Path(chosen.kubeconfig).expanduser() if chosen.kubeconfig else None,
        chosen.kube_context,
        _of_pods(wanted.found),
        folders,
        volume,
        wanted.listen,
        wanted.defaults,
        (frozenset(chosen.user_groups), frozenset(chosen.admin_groups)),
        Keep(chosen.keep_ended_s, chosen.keep_ended_jobs),
        _accounts(wanted.found),
    )
    return partial(cluster_place, choice=choice)


def _of_pods(found: Found) -> KubernetesSettings:
    from rota.engines.kubernetes.settings import KubernetesSettings  # noqa: PLC0415

    chosen = found.daemon()
    return KubernetesSettings(
        namespace=chosen.namespace,
        gpu_resource=chosen.gpu_resource,
        image=chosen.pod_image,
        placeholder_image=chosen.placeholder_image,
        pull_secrets=chosen.pull_secrets,
        service_account=chosen.service_account,
        priority_class=chosen.priority_class,
        tolerations=_tolerations(found),
        host_paths=chosen.host_paths,
        bind_patience_s=chosen.bind_patience_s,
        stuck_after_s=chosen.stuck_after_s,
        advertise=chosen.advertise,
    )


def _accounts(found: Found) -> Mapping[str, Account]:
    with blamed(found.get("accounts")):
        return parse_accounts(found.daemon().accounts)


def _tolerations(found: Found) -> tuple[dict[str, str], ...]:
    with blamed(found.get("tolerations")):
        return tuple(map(_toleration, found.daemon().tolerations))


def _toleration(text: str) -> dict[str, str]:
    """`KEY`, `KEY=VALUE`, `KEY:EFFECT` or `KEY=VALUE:EFFECT`."""
    rest, _, effect = text.partition(":")
    key, equals, value = rest.partition("=")
    if not key or effect not in EFFECTS:
        hint = "write KEY=VALUE:NoSchedule, as a taint is written"
        raise UserError(f"'{shown(text)}' is no toleration", hint)
    found = {"key": key, "operator": "Equal" if equals else "Exists"}
    found |= {"value": value} if equals else {}
    return found | ({"effect": effect} if effect else {})
