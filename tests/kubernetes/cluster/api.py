"""A small API client for tests, independent of rota."""

import base64
import http.client
import json
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, TypeVar
from urllib.parse import urlsplit

import yaml

from rota.kube.json_parser import parse_json
from tests.support.timeouts import PATIENCE_S

ANSWER_S = 30.0
POLL_S = 0.2
CONTENT_TYPES = {"PATCH": "application/merge-patch+json"}

Object = dict[str, Any]
Found = TypeVar("Found")


class RefusedError(Exception):
    """The API server rejected a request."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Api:
    """One API server with the credentials of a kubeconfig; one connection per request."""

    def __init__(self, kubeconfig: Path) -> None:
        cluster, user = current(yaml.safe_load(kubeconfig.read_text()))
        self._host = urlsplit(cluster["server"]).netloc
        self._context = trust(cluster, user)
        self._headers = {"Authorization": f"Bearer {user['token']}"} if "token" in user else {}

    def get(self, path: str) -> Object:
        return self.ask("GET", path)

    def items(self, path: str) -> list[Object]:
        return self.get(path)["items"]

    def create(self, path: str, body: Object) -> Object:
        return self.ask("POST", path, body)

    def patch(self, path: str, body: Object) -> Object:
        """A merge patch."""
        return self.ask("PATCH", path, body)

    def delete(self, path: str, *, grace_s: int | None = None) -> None:
        """A missing object is not an error."""
        try:
            self.ask("DELETE", path, {} if grace_s is None else {"gracePeriodSeconds": grace_s})
        except RefusedError as error:
            if error.code != 404:
                raise

    def watch(self, path: str) -> Iterator[Object]:
        """The changes from now on, until the connection breaks."""
        version = self.get(path)["metadata"]["resourceVersion"]
        connection = self._connect()
        words = f"{path}?watch=1&resourceVersion={version}"
        connection.request("GET", words, headers=self._headers)
        return changes(connection)

    def text(self, path: str) -> str:
        return self.exchange("GET", path, None).decode()

    def ask(self, method: str, path: str, body: Object | None = None) -> Object:
        content = None if body is None else json.dumps(body).encode()
        return decoded(self.exchange(method, path, content))

    def exchange(self, method: str, path: str, content: bytes | None) -> bytes:
        kind = {"Content-Type": CONTENT_TYPES.get(method, "application/json")}
        with closing(self._connect()) as connection:
            connection.request(method, path, content, self._headers | kind)
            response = connection.getresponse()
            answer = response.read()
        if response.status >= 400:
            raise RefusedError(response.status, answer.decode(errors="replace"))
        return answer

    def _connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self._host, context=self._context, timeout=ANSWER_S)


def decoded(content: bytes) -> Object:
    """Objects of a test may be nested too deeply for the json module."""
    try:
        return json.loads(content)
    except RecursionError:
        return parse_json(content)


def changes(connection: http.client.HTTPSConnection) -> Iterator[Object]:
    with closing(connection), connection.getresponse() as response:
        yield from map(json.loads, response)


def current(config: Object) -> tuple[Object, Object]:
    """The cluster and the user of the current context."""

    def named(kind: str, name: str) -> Object:
        return next(each[kind] for each in config[f"{kind}s"] if each["name"] == name)

    context = named("context", config["current-context"])
    return named("cluster", context["cluster"]), named("user", context["user"])


def trust(cluster: Object, user: Object) -> ssl.SSLContext:
    authority = content_of(cluster, "certificate-authority")
    context = ssl.create_default_context(cadata=authority.decode() if authority else None)
    certificate, key = (content_of(user, f"client-{name}") for name in ("certificate", "key"))
    if certificate and key:
        with NamedTemporaryFile() as file:
            file.write(certificate + b"\n" + key)
            file.flush()
            context.load_cert_chain(file.name)
    return context


def content_of(entry: Object, name: str) -> bytes | None:
    if f"{name}-data" in entry:
        return base64.b64decode(entry[f"{name}-data"])
    return Path(entry[name]).read_bytes() if name in entry else None


def until(found: Callable[[], Found | None], what: str, *, limit_s: float = PATIENCE_S) -> Found:
    """Call the function until its result is true, and return the result; waits for an
    unreachable API server."""
    deadline = time.monotonic() + limit_s
    trouble = ""
    while time.monotonic() < deadline:
        try:
            if value := found():
                return value
        except (OSError, http.client.HTTPException, RefusedError) as error:
            trouble = f" ({error})"
        time.sleep(POLL_S)
    raise TimeoutError(f"{what}: not within {limit_s:.0f} s{trouble}")
