"""A private certificate authority in a folder, for tests and small clusters: `understudy certs`.

    DIR/ca/        ca.crt, ca.key        the authority; its key signs and stays here
    DIR/NAME/      ca.crt, tls.crt, tls.key      the files of one server or client: the layout of a Kubernetes TLS secret

Keys are elliptic curve keys (P-256), readable by their owner only. Servers' certificates are valid for server authentication and the given
names; clients' for client authentication, with their rights as a URI (`security.py`). So neither can replace the other.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from understudy.messages import orchestrators
from understudy.orchestrator.security import URI, Role

AUTHORITY = "ca"
AUTHORITY_DAYS = 3650
_HERE = ("localhost", "127.0.0.1", "::1")
_SKEW = datetime.timedelta(minutes=5)  # between the clocks of two hosts


def make_authority(folder: Path, days: int = AUTHORITY_DAYS) -> Path:
    """Make `folder`/ca. Raises `FileExistsError` if there is one: its certificates would be worthless with a new key."""
    place = folder / AUTHORITY
    place.mkdir(parents=True)
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("Understudy private authority")
    builder = _builder(name, name, key.public_key(), days)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs=True), critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    _write_key(place / "ca.key", key)
    _write(place / "ca.crt", builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    return place


def issue_server(folder: Path, name: str, hosts: list[str], days: int) -> Path:
    """Issue a certificate for an orchestrator at `hosts` (names and addresses) and its own host. Raises like `issue_client`."""
    names = [_alternative(host) for host in dict.fromkeys((*hosts, *_HERE))]
    return _issue(folder, name, names, ExtendedKeyUsageOID.SERVER_AUTH, days)


def issue_client(folder: Path, name: str, roles: list[Role], job: str, node: str, days: int) -> Path:
    """Issue a certificate for these roles, for one job or (empty) all; an agent's for one node.

    Raises `FileNotFoundError` without an authority in `folder`, `FileExistsError` if the name is taken, and `ValueError`.
    """
    about = [node if role is Role.AGENT else job for role in roles]
    uris = [f"{URI}{role.value}" + (f":{one}" if one else "") for role, one in zip(roles, about, strict=True)]
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(uri) for uri in uris]
    return _issue(folder, name, names, ExtendedKeyUsageOID.CLIENT_AUTH, days)


def _issue(folder: Path, name: str, names: list[x509.GeneralName], use: x509.ObjectIdentifier, days: int) -> Path:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name) or name == AUTHORITY:
        raise ValueError(orchestrators.CERTIFICATE_NAME_REFUSED(name=name, authority=AUTHORITY))
    authority = x509.load_pem_x509_certificate((folder / AUTHORITY / "ca.crt").read_bytes())
    signer = serialization.load_pem_private_key((folder / AUTHORITY / "ca.key").read_bytes(), None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise ValueError(orchestrators.AUTHORITY_KEY_REFUSED(path=folder / AUTHORITY / "ca.key"))
    place = folder / name
    place.mkdir()
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(_name(name), authority.subject, key.public_key(), days)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(signs=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([use]), critical=False)
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    builder = builder.add_extension(identifier, critical=False)
    _write_key(place / "tls.key", key)
    _write(place / "tls.crt", builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    _write(place / "ca.crt", authority.public_bytes(serialization.Encoding.PEM))
    return place


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(now - _SKEW).not_valid_after(now + datetime.timedelta(days=days))


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    form = serialization.PrivateFormat.PKCS8
    _write(path, key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()), mode=0o600)


def _write(path: Path, content: bytes, mode: int = 0o644) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
        file.write(content)
