"""TLS connections to a daemon: verified by a trusted authority, or by a known fingerprint."""

from __future__ import annotations

import hashlib
import hmac
import socket
import ssl

from rota.errors import UnavailableError, UserError

FIX = (
    "compare the fingerprint with that of 'rota status' on the daemon's machine, and use its URL"
    " with #sha256=... at the end"
)


def wrap(opened: socket.socket, host: str, *, fingerprint: str, shown: str) -> socket.socket:
    """Encrypt a connection. `fingerprint`: the only certificate to trust; empty: any certificate
    for this host that a trusted authority has signed. `shown` names the daemon in errors."""
    context = _accepting_all() if fingerprint else ssl.create_default_context()
    try:
        encrypted = context.wrap_socket(opened, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        what = f"the certificate of {shown} is not trusted: {error.verify_message}"
        raise UserError(what, FIX) from None
    except ssl.SSLError as error:
        raise UnavailableError(f"TLS error at {shown}: {error.reason or error}") from None
    found = _fingerprint(encrypted)
    if fingerprint and not hmac.compare_digest(found, fingerprint):
        encrypted.close()
        what = f"{shown} has another certificate than the one you trust (sha256={found})"
        raise UserError(what, FIX)
    return encrypted


def untrusted_fingerprint(host: str, port: int, *, timeout_s: float) -> str:
    """The fingerprint of the certificate there; empty if a trusted authority has signed it."""
    with socket.create_connection((host, port), timeout=timeout_s) as opened:
        try:
            ssl.create_default_context().wrap_socket(opened, server_hostname=host).close()
            return ""
        except ssl.SSLCertVerificationError:
            pass
    with (
        socket.create_connection((host, port), timeout=timeout_s) as opened,
        _accepting_all().wrap_socket(opened, server_hostname=host) as encrypted,
    ):
        return _fingerprint(encrypted)


def _accepting_all() -> ssl.SSLContext:
    """For a certificate that is checked by its fingerprint."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _fingerprint(encrypted: ssl.SSLSocket) -> str:
    return hashlib.sha256(encrypted.getpeercert(binary_form=True) or b"").hexdigest()
