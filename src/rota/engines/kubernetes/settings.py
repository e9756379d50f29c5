"""Settings of the Kubernetes engine."""

from __future__ import annotations

from dataclasses import dataclass, field

from rota.engines.interface import LogLimits
from rota.kube.resources import Object


@dataclass(frozen=True, slots=True)
class KubernetesSettings:
    namespace: str = ""
    """The namespace of our pods; empty: that of the kubeconfig or the service account."""
    gpu_resource: str = "nvidia.com/gpu"
    """The resource name of a whole GPU; also `amd.com/gpu` or a MIG profile."""
    image: str = "python:3.12-slim"
    """The image of jobs that name none."""
    placeholder_image: str = ""
    """The image of pods that reserve shared GPUs; needs a shell. Empty: `image`."""
    pull_secrets: tuple[str, ...] = ()
    service_account: str = ""
    priority_class: str = ""
    tolerations: tuple[Object, ...] = ()
    host_paths: tuple[str, ...] = ()
    """Folders of the nodes that jobs may mount, including all folders below. Empty: none."""
    bind_patience_s: float = 20.0
    """How long a pod may stay unschedulable before it is given up."""
    stuck_after_s: float = 120.0
    """How long a pod may fail to start (missing image, missing volume) before it is given up."""
    keep_finished_s: float = 300.0
    """How long a finished pod stays in the cluster after its end was reported."""
    log: LogLimits = field(default_factory=LogLimits)
    """Limits of a worker's log. Not in an annotation of its pod, which users may edit."""
    advertise: str = ""
    """The URL at which workers reach the daemon."""
