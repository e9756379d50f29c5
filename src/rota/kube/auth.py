"""The address of a cluster and our credentials, from a kubeconfig or from a pod's service
account."""

from __future__ import annotations

import os
import ssl
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx2
import yaml
from lightkube.config.client_adapter import user_auth, verify_cluster
from lightkube.config.kubeconfig import KubeConfig, SingleConfig
from lightkube.config.models import User
from lightkube.core.exceptions import ConfigError

from rota.errors import UserError

EXEC_API_GROUP = "client.authentication.k8s.io"
HINT = "name a kubeconfig and a context, or set KUBECONFIG"


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    url: str
    namespace: str
    tls: ssl.SSLContext
    auth: httpx2.Auth | None = None
    uses_proxy: bool = True

    async def headers(self, *, is_refused: bool = False) -> dict[str, str]:
        """The authorization header. `is_refused`: the last credentials were rejected; read them
        again if possible."""
        if self.auth is None:
            return {}
        flow = self.auth.async_auth_flow(httpx2.Request("GET", self.url))
        try:
            request = await anext(flow)
            if is_refused:
                with suppress(StopAsyncIteration):
                    request = await flow.asend(httpx2.Response(401, request=request))
        except ConfigError as error:
            raise UserError(f"no credentials for the cluster: {error}", HINT) from None
        finally:
            await flow.aclose()
        authorization = request.headers.get("Authorization")
        return {"Authorization": authorization} if authorization else {}


def load_access(kubeconfig: Path | None = None, context: str = "") -> ClusterAccess:
    """Without arguments: a pod's service account, else the kubeconfig that kubectl would use."""
    try:
        return _access(_chosen(kubeconfig, context))
    except ConfigError as error:
        raise UserError(f"no cluster to connect to: {str(error).lower()}", HINT) from None
    except (KeyError, TypeError, AttributeError, AssertionError, yaml.YAMLError) as error:
        raise UserError(f"not a valid kubeconfig: {_source(kubeconfig)}", HINT) from error
    except (OSError, ssl.SSLError, ValueError) as error:
        raise UserError(f"cannot read kubeconfig {_source(kubeconfig)}: {error}", HINT) from None


def _chosen(kubeconfig: Path | None, context: str) -> SingleConfig:
    if kubeconfig is None and not context and "KUBERNETES_SERVICE_HOST" in os.environ:
        found = KubeConfig.from_service_account().get()
    else:
        found = KubeConfig.from_file(_source(kubeconfig)).get(context_name=context or None)
    if found is None:
        raise ConfigError("no context is selected")
    return found


def _source(kubeconfig: Path | None) -> Path:
    return kubeconfig or Path(os.environ.get("KUBECONFIG") or "~/.kube/config").expanduser()


def _access(config: SingleConfig) -> ClusterAccess:
    if config.user is None:
        raise ConfigError(f"context {config.context_name} names no user")
    return ClusterAccess(
        url=config.cluster.server.rstrip("/"),
        namespace=config.namespace,
        tls=verify_cluster(config.cluster, config.user, config.abs_file),
        auth=user_auth(_with_known_exec(config.user)),
    )


def _with_known_exec(user: User) -> User:
    """lightkube does not know `v1` of the exec plugin API. `v1beta1` has the same format."""
    if user.exec is not None and user.exec.apiVersion == f"{EXEC_API_GROUP}/v1":
        user.exec.apiVersion = f"{EXEC_API_GROUP}/v1beta1"
    return user
