"""The certificate of the TCP listener: files of the administrator, or one that the daemon makes.

A certificate of the daemon is signed by itself. Clients trust it by its fingerprint, which `rota
status` shows on the machine of the daemon, so its dates and names do not matter to them.
"""

from __future__ import annotations

import hashlib
import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from rota.api.listeners import TlsFiles
from rota.config.atomic_file import replace_file
from rota.errors import UserError

if TYPE_CHECKING:
    from cryptography.x509 import GeneralName

CERTIFICATE_NAME, KEY_NAME = "tls-cert.pem", "tls-key.pem"
VALID_DAYS = 365 * 20


def given_tls(certificate: str, key: str) -> TlsFiles:
    """The administrator's files. Raises if they are not a certificate and its key."""
    if not (certificate and key):
        raise UserError("tls_cert and tls_key belong together", "set both of them")
    files = TlsFiles(Path(certificate).expanduser(), Path(key).expanduser())
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
            files.certificate, files.key
        )
    except OSError as error:  # Includes ssl.SSLError.
        what = f"cannot use {files.certificate} with {files.key}: {error}"
        raise UserError(what, "give a certificate chain and its key as PEM files") from None
    return files


def own_tls(folder: Path, host: str) -> TlsFiles:
    """The daemon's own certificate, made at its first use. Blocks."""
    certificate, key = folder / CERTIFICATE_NAME, folder / KEY_NAME
    if not (certificate.exists() and key.exists()):
        cert_pem, key_pem = _self_signed(host)
        replace_file(key, key_pem)
        replace_file(certificate, cert_pem)
    key.chmod(0o600)
    der = ssl.PEM_cert_to_DER_cert(certificate.read_text(encoding="ascii"))
    return TlsFiles(certificate, key, hashlib.sha256(der).hexdigest())


def _self_signed(host: str) -> tuple[str, str]:
    """A certificate and its key, as PEM."""
    # Imported here: the library is large, and only the first start on TCP needs it.
    from cryptography import x509  # noqa: PLC0415
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "rota")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=VALID_DAYS))
        .add_extension(x509.SubjectAlternativeName([_alternative_name(host)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    key_pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return certificate.public_bytes(serialization.Encoding.PEM).decode(), key_pem.decode()


def _alternative_name(host: str) -> GeneralName:
    from cryptography import x509  # noqa: PLC0415

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
