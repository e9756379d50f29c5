"""Runs in an init container: downloads the job's shipped code as a tar stream and unpacks it.

An image's Python gets this file as text, so it uses only the standard library of any version.
"""

import hashlib
import http.client
import json
import os
import shutil
import ssl
import sys
import tarfile
import time
import urllib.error
import urllib.request
from pathlib import Path

TIMEOUT_S = 300.0
RETRY_S = 2.0
READ_TIMEOUT_S = 30.0
FAILED, TRY_LATER = 1, 75
FIRST_SERVER_ERROR = 500
TRANSIENT_ERRORS = (OSError, EOFError, ValueError, tarfile.TarError, http.client.HTTPException)


def trusted(address: str, fingerprint: str) -> ssl.SSLContext | None:
    """Trusts the one certificate with this fingerprint; None without a fingerprint."""
    if not fingerprint:
        return None
    host, _, port = address.partition("://")[2].rpartition(":")
    pem = ssl.get_server_certificate((host.strip("[]"), int(port)))
    if hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest() != fingerprint:
        raise OSError("the daemon has an unknown certificate")
    context = ssl.create_default_context(cadata=pem)
    context.check_hostname = False
    return context


def fetch(folder: str) -> None:
    url, token = os.environ["ROTA_URL"], os.environ["ROTA_TOKEN"]
    address, _, fragment = url.partition("#")
    context = trusted(address, fragment.partition("=")[2])
    request = urllib.request.Request(  # noqa: S310 - the URL is the daemon's
        address + "/v1/code", headers={"Authorization": "Bearer " + token}
    )
    opened = urllib.request.urlopen(request, timeout=READ_TIMEOUT_S, context=context)  # noqa: S310
    with opened as response:
        with tarfile.open(fileobj=response, mode="r|") as archive:
            # The daemon validated the snapshot, including its links, when it was shipped.
            archive.extraction_filter = lambda member, _: member
            archive.extractall(folder)  # noqa: S202 - the daemon validated it
        # Read to the end: an incomplete response must fail.
        response.read()


def clear(folder: str) -> None:
    """Delete what an earlier try left. The folder itself is a volume and stays."""
    for each in Path(folder).iterdir():
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(str(each))
        else:
            each.unlink()


def message(content: bytes) -> str:
    """The message in the daemon's response, or the text of a proxy in between."""
    try:
        return str(json.loads(content.decode())["message"])
    except (ValueError, LookupError, TypeError):
        return content.decode(errors="replace")


def main(folder: str) -> int:
    give_up_s = time.monotonic() + TIMEOUT_S
    while True:
        try:
            clear(folder)
            fetch(folder)
            return 0
        except urllib.error.HTTPError as error:
            text, is_final = message(error.read(4096)), error.code < FIRST_SERVER_ERROR
        except TRANSIENT_ERRORS as error:
            text, is_final = str(error) or type(error).__name__, False
        if is_final or time.monotonic() > give_up_s:
            sys.stderr.write(text + "\n")
            return FAILED if is_final else TRY_LATER
        time.sleep(RETRY_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
