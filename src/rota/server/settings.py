"""Turns the loaded configuration (`rota.config`) into the typed settings that build a daemon."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType

from rota.api.listeners import TcpAddress, TlsFiles
from rota.api.uvicorn_protocol import ClientTimeouts
from rota.config.limits import DEFAULT_LIMITS, UserLimits
from rota.config.load import (
    POLICY_NAME,
    LoadedSettings,
    Sources,
    daemon_settings,
    error_names_origin,
    home_setting,
)
from rota.config.paths import store_file
from rota.config.schema import DaemonSettings
from rota.core.scheduling.view import Rules
from rota.daemon.access.authorization import DEFAULT_PRIORITY_LIMITS, PriorityLimits
from rota.daemon.elastic.membership import DEFAULT_LIVENESS_POLICY, LivenessPolicy
from rota.daemon.jobs.admission import Defaults
from rota.daemon.migration.requests import DEFAULT_MIGRATION_LIMITS, MigrationLimits
from rota.daemon.retention import RetentionLimits
from rota.engines.interface import LogLimits
from rota.errors import UserError, shown
from rota.policies.registry import parse, with_absolute_path
from rota.server.backend import BackendFactory
from rota.server.backend_config import backend_from_settings
from rota.server.tls import given_tls, own_tls
from rota.wire.daemon import SettingView

NO_FLAGS: Mapping[str, str] = MappingProxyType({})
FOREVER = RetentionLimits(math.inf, math.inf)


@dataclass(frozen=True, slots=True)
class Settings:
    """How to run a daemon. `listen` is the address of its TCP listener, if it has one; `backend`
    makes the parts that differ with the place where jobs run; `are_accounts`: jobs may run as other
    users than the daemon."""

    folder: Path
    store_file: Path
    backend: BackendFactory
    policy: str
    policy_file: Path
    rules: Rules
    defaults: Callable[[str], Defaults]
    are_accounts: bool = False
    admins: frozenset[str] = frozenset()
    priority_limits: PriorityLimits = DEFAULT_PRIORITY_LIMITS
    listen: TcpAddress | None = None
    flags: Mapping[str, str] = field(default_factory=dict[str, str])
    """The flags of this start and of earlier ones; the next start uses them again."""
    effective: Sequence[SettingView] = ()
    """All settings as they were loaded, for `rota config show`."""
    has_policy_flag: bool = False
    """`--policy` was given: `policy_file` keeps the policy, as after `rota policy set`."""
    keep_logs_s: float = math.inf
    keep_workdir_s: float = math.inf
    retention: RetentionLimits = FOREVER
    liveness: LivenessPolicy = DEFAULT_LIVENESS_POLICY
    migration: MigrationLimits = DEFAULT_MIGRATION_LIMITS
    timeouts: ClientTimeouts = field(default_factory=ClientTimeouts)
    limits: UserLimits = DEFAULT_LIMITS


KUBERNETES = "kubernetes"


def settings_of(
    folder: Path, flags: Mapping[str, str], *, remembered: Mapping[str, str] = NO_FLAGS
) -> Settings:
    """Read flags, environment variables and files. Raises for the first invalid setting.
    `remembered` holds the flags of the last start."""
    found = daemon_settings(Sources(folder, flags=flags, remembered=remembered))
    chosen = found.daemon()
    with error_names_origin(found.get("policy")):
        parse(chosen.policy)
    with error_names_origin(found.get("listen")):
        address = parse_listen(chosen.listen) if chosen.listen else None
    with error_names_origin(found.get("tls_cert")):
        listen = TcpAddress(*address, _tls(chosen, folder, host=address[0])) if address else None
    defaults = cache(partial(_defaults, found))
    return Settings(
        folder=folder,
        store_file=store_file(),
        backend=backend_from_settings(found, folder, defaults=defaults),
        are_accounts=os.geteuid() == 0 or chosen.engine == KUBERNETES,
        policy=with_absolute_path(chosen.policy),
        policy_file=folder / POLICY_NAME,
        rules=_rules(chosen, found.limits()),
        limits=found.limits(),
        defaults=defaults,
        admins=frozenset(chosen.admins),
        priority_limits=PriorityLimits(chosen.max_priority, chosen.max_admin_priority),
        listen=listen,
        flags={**remembered, **_repeatable(flags)},
        effective=[each.view() for each in (home_setting(folder), *found)],
        has_policy_flag=bool(flags.get("policy")),
        keep_logs_s=chosen.keep_logs_s,
        keep_workdir_s=chosen.keep_workdir_s,
        retention=RetentionLimits(chosen.keep_jobs_s, chosen.keep_events_s),
        liveness=LivenessPolicy(chosen.heartbeat_s, chosen.replace_stragglers),
        migration=MigrationLimits(
            tuple(each.removesuffix("/") for each in chosen.move_to), chosen.move_patience_s
        ),
    )


def _repeatable(flags: Mapping[str, str]) -> dict[str, str]:
    """The given flags without the policy, which has a file of its own."""
    return {name: text for name, text in flags.items() if text and name != "policy"}


def _rules(chosen: DaemonSettings, limits: UserLimits) -> Rules:
    return Rules(
        round_interval_s=chosen.round_interval_s,
        min_runtime_s=chosen.min_runtime_s,
        restart_cost_s=chosen.restart_cost_s,
        starvation_after_s=chosen.starvation_after_s,
        backoff_s=chosen.backoff_s,
        max_cpu_jobs=limits.max_cpu_jobs,
    )


def _defaults(found: LoadedSettings, project: str) -> Defaults:
    daemon, job = found.daemon(), found.defaults(project)
    return Defaults(
        are_contained=daemon.engine == KUBERNETES,
        image=job.image,
        env=job.env,
        mounts=job.mounts,
        grace_s=daemon.grace_s,
        log=LogLimits(daemon.log_file_bytes, daemon.log_files),
    )


def _tls(chosen: DaemonSettings, folder: Path, *, host: str) -> TlsFiles | None:
    if chosen.tls_cert or chosen.tls_key:
        return given_tls(chosen.tls_cert, chosen.tls_key)
    return None if chosen.plain_http else own_tls(folder, host)


def parse_listen(text: str) -> tuple[str, int]:
    """The host and the port of the setting `listen`."""
    host, _, port = text.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdigit() or not 0 < int(port) <= 65535:
        raise UserError(
            f"'{shown(text)}' is not a valid listen address",
            "write HOST:PORT, such as 127.0.0.1:8800",
        )
    return host, int(port)
