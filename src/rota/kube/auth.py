"""The address of a cluster and our credentials, from a kubeconfig or from a pod's service
account."""

from __future__ import annotations

import base64
import os
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rota.errors import RotaError, UserError
from rota.kubeconfig import KubeconfigEntry, KubeContext, load_context, read_token
from rota.thread_pools import OTHER_SYSTEMS

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
HINT = "name a kubeconfig and a context, or set KUBECONFIG"


class ClusterCredentials:
    """The authorization header of a user. It is read once, and again after the cluster refused
    it: tokens expire, and kubelets rotate the tokens of pods."""

    def __init__(self, user: KubeconfigEntry) -> None:
        self._user = user
        self._header: str | None = None

    async def header(self, *, is_refused: bool) -> str:
        """Empty for a user with a client certificate only."""
        if self._header is None or is_refused:
            # A credential plugin may take a minute.
            self._header = await OTHER_SYSTEMS.run(_authorization, self._user)
        return self._header


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    url: str
    namespace: str
    tls: ssl.SSLContext
    credentials: ClusterCredentials | None = None
    uses_proxy: bool = True

    async def headers(self, *, is_refused: bool = False) -> dict[str, str]:
        """The authorization header. `is_refused`: the last credentials were rejected; read them
        again."""
        if self.credentials is None:
            return {}
        try:
            header = await self.credentials.header(is_refused=is_refused)
        except RotaError as error:
            raise UserError(f"no credentials for the cluster: {error.message}", HINT) from None
        return {"Authorization": header} if header else {}


def load_access(kubeconfig: Path | None = None, context: str = "") -> ClusterAccess:
    """Without arguments: a pod's service account, else the kubeconfig that kubectl would use."""
    if kubeconfig is None and not context and "KUBERNETES_SERVICE_HOST" in os.environ:
        return _access(_service_account())
    return _access(load_context(kubeconfig or "", context))


def _service_account() -> KubeContext:
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    host = f"[{host}]" if ":" in host else host
    cluster = {"server": f"https://{host}:{port}", "certificate-authority": "ca.crt"}
    path = SERVICE_ACCOUNT / "namespace"
    try:
        namespace = path.read_text().strip()
    except OSError as error:
        what = f"cannot read the service account of this pod: {path}: {error.strerror}"
        raise UserError(what, HINT) from None
    return KubeContext(
        cluster=KubeconfigEntry("pod", path, cluster),
        user=KubeconfigEntry("pod", path, {"tokenFile": "token"}),
        namespace=namespace,
    )


def _access(context: KubeContext) -> ClusterAccess:
    cluster, user = context.cluster, context.user
    if not cluster.text("server"):
        raise UserError(f"{cluster.path}: no address of cluster '{cluster.name}'", HINT)
    if user.fields.get("auth-provider"):
        what = f"{user.path}: user '{user.name}' has an auth-provider, which is not supported"
        raise UserError(what, "use a token or a credential plugin ('exec')")
    tls = _server_tls(cluster)
    _add_client_certificate(tls, user)
    return ClusterAccess(
        url=cluster.text("server").rstrip("/"),
        namespace=context.namespace,
        tls=tls,
        credentials=ClusterCredentials(user),
    )


def _authorization(user: KubeconfigEntry) -> str:
    if token := read_token(user):
        return f"Bearer {token}"
    if name := user.text("username"):
        pair = f"{name}:{user.text('password')}".encode()
        return f"Basic {base64.b64encode(pair).decode()}"
    return ""


def _server_tls(cluster: KubeconfigEntry) -> ssl.SSLContext:
    field = "certificate-authority"
    try:
        if data := cluster.text(f"{field}-data"):
            text = base64.b64decode(data, validate=True).decode("ascii")
            tls = ssl.create_default_context(cadata=text)
        else:
            tls = ssl.create_default_context(cafile=cluster.file(field))
    except (OSError, ValueError) as error:
        which = cluster.file(field) or f"{field}-data"
        what = f"{cluster.path}: cannot read the certificate of cluster '{cluster.name}'"
        raise UserError(f"{what} from {which}: {error}", HINT) from None
    if cluster.fields.get("insecure-skip-tls-verify") is True:
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    return tls


def _add_client_certificate(tls: ssl.SSLContext, user: KubeconfigEntry) -> None:
    """The ssl module reads certificates from files only."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            certificate = _file_of(user, "client-certificate", folder=Path(folder))
            key = _file_of(user, "client-key", folder=Path(folder))
            if certificate:
                tls.load_cert_chain(certificate, key)
        except (OSError, ValueError) as error:
            what = f"{user.path}: cannot read the client certificate of the user '{user.name}'"
            raise UserError(f"{what}: {error}", HINT) from None


def _file_of(user: KubeconfigEntry, field: str, *, folder: Path) -> Path | None:
    if data := user.text(f"{field}-data"):
        path = folder / field
        path.write_bytes(base64.b64decode(data, validate=True))
        return path
    return user.file(field)
