"""What a lab may say about how its workers run on a cluster."""

from __future__ import annotations

from dataclasses import dataclass

from rota.engines.kubernetes.objects import Object


@dataclass(frozen=True, slots=True)
class KubernetesSettings:
    namespace: str = ""
    """Where our pods live; empty: the one that the kubeconfig or the service account says."""
    gpu_resource: str = "nvidia.com/gpu"
    """What a whole GPU is called: `amd.com/gpu`, or a MIG profile, are others."""
    image: str = "python:3.12-slim"
    """For jobs that name none."""
    placeholder_image: str = ""
    """For the pods that hold shared cards: anything with a shell. Empty: `image`."""
    pull_secrets: tuple[str, ...] = ()
    service_account: str = ""
    priority_class: str = ""
    tolerations: tuple[Object, ...] = ()
    host_paths: tuple[str, ...] = ()
    """Folders of the nodes that jobs may mount, with all below them. None: no job may."""
    bind_patience_s: float = 20.0
    """How long the cluster's scheduler may take over a pod that it cannot place."""
    stuck_after_s: float = 120.0
    """How long a pod may be unable to start: no such image, a volume that does not come."""
    keep_finished_s: float = 300.0
    """How long a pod that has ended is kept in the cluster after its end was told."""
    advertise: str = ""
    """Where workers reach the daemon, as a URL."""
