"""Chooses and configures the backend that the setting `engine` names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from rota.config.load import LoadedSettings, error_names_origin
from rota.daemon.access.accounts import parse_accounts
from rota.daemon.jobs.admission import Defaults
from rota.daemon.launch.checkpoint_dirs import CheckpointDirs, parse_checkpoint_dirs
from rota.daemon.launch.interface import VOLUMES
from rota.engines.interface import LogLimits, UnixAccount
from rota.engines.local.gpu_locks import selected
from rota.engines.local.gpus import find, parse_virtual
from rota.errors import UserError, did_you_mean, shown
from rota.server.backend import BackendFactory, local_backend

if TYPE_CHECKING:
    from rota.engines.kubernetes.settings import KubernetesSettings

EFFECTS = ("", "NoSchedule", "PreferNoSchedule", "NoExecute")

UNUSED_SETTINGS = {
    "local": {
        "kubeconfig": "--kubeconfig",
        "kube_context": "--context",
        "namespace": "--namespace",
    },
    "kubernetes": {"virtual_gpus": "--virtual-gpus", "gpus_from": "--gpus-from"},
}
"""Settings that an engine does not use. A file may contain them; as flags they are errors, because
the user means another engine."""


@dataclass(frozen=True, slots=True)
class BackendOptions:
    """The settings, and values that were already made from some of them."""

    found: LoadedSettings
    folder: Path
    defaults: Callable[[str], Defaults]


def backend_from_settings(
    found: LoadedSettings,
    folder: Path,
    *,
    defaults: Callable[[str], Defaults],
) -> BackendFactory:
    engines = {"local": _local, "kubernetes": _kubernetes}
    name = found.daemon().engine
    with error_names_origin(found.get("engine")):
        if name not in engines:
            hint = did_you_mean(name, engines) or f"use {' or '.join(engines)}"
            raise UserError(f"unknown engine '{shown(name)}'", hint)
    for key, flag in UNUSED_SETTINGS[name].items():
        if found.get(key).origin.startswith("--"):
            other = next(each for each in engines if each != name)
            raise UserError(f"{flag} needs --engine {other}, but the engine is {name}")
    return engines[name](BackendOptions(found, folder, defaults))


def _local(options: BackendOptions) -> BackendFactory:
    chosen = options.found.daemon()
    with error_names_origin(options.found.get("virtual_gpus")):
        gpus = parse_virtual(chosen.virtual_gpus) if chosen.virtual_gpus else find()
    with error_names_origin(options.found.get("gpus_from")):
        gpus = selected(gpus, chosen.gpus_from)
    with error_names_origin(options.found.get("checkpoints")):
        checkpoints = parse_checkpoint_dirs(chosen.checkpoints, folder=options.folder)
    return partial(local_backend, gpus=gpus, checkpoints=checkpoints)


def _kubernetes(options: BackendOptions) -> BackendFactory:
    if find_spec("aiohttp") is None:
        raise UserError(
            "the Kubernetes libraries are not installed", "install rota as 'rota[kubernetes]'"
        )
    # These imports are slow, and only a daemon of a cluster needs them.
    from rota.operator.ttl_cleanup import TtlLimits  # noqa: PLC0415
    from rota.server.kubernetes_backend import KubernetesBackendConfig, kubernetes_backend  # noqa: PLC0415

    chosen = options.found.daemon()
    volume = chosen.checkpoints if chosen.checkpoints.startswith(VOLUMES) else ""
    folders: CheckpointDirs | None = None
    with error_names_origin(options.found.get("checkpoints")):
        if chosen.checkpoints and not volume:
            folders = parse_checkpoint_dirs(chosen.checkpoints, folder=options.folder)
    config = KubernetesBackendConfig(
        Path(chosen.kubeconfig).expanduser() if chosen.kubeconfig else None,
        chosen.kube_context,
        _pod_settings(options.found),
        folders,
        volume,
        options.defaults,
        (frozenset(chosen.user_groups), frozenset(chosen.admin_groups)),
        TtlLimits(chosen.keep_ended_s, chosen.keep_ended_jobs),
        _accounts(options.found),
    )
    return partial(kubernetes_backend, config=config)


def _pod_settings(found: LoadedSettings) -> KubernetesSettings:
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
        log=LogLimits(chosen.log_file_bytes, chosen.log_files),
        advertise=chosen.advertise,
    )


def _accounts(found: LoadedSettings) -> Mapping[str, UnixAccount]:
    with error_names_origin(found.get("accounts")):
        return parse_accounts(found.daemon().accounts)


def _tolerations(found: LoadedSettings) -> tuple[dict[str, str], ...]:
    with error_names_origin(found.get("tolerations")):
        return tuple(map(_toleration, found.daemon().tolerations))


def _toleration(text: str) -> dict[str, str]:
    """`KEY`, `KEY=VALUE`, `KEY:EFFECT` or `KEY=VALUE:EFFECT`."""
    rest, _, effect = text.partition(":")
    key, equals, value = rest.partition("=")
    if not key or effect not in EFFECTS:
        hint = "write KEY=VALUE:NoSchedule, like a taint"
        raise UserError(f"'{shown(text)}' is not a valid toleration", hint)
    found = {"key": key, "operator": "Equal" if equals else "Exists"}
    found |= {"value": value} if equals else {}
    return found | ({"effect": effect} if effect else {})
