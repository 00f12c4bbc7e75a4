"""Decide which certificates to trust for the orchestrator: its own certificate and no other, or those of a private authority.

A *file* is the orchestrator's certificate (the first one in it, as servers present it): it may sign itself, and the name under which
the orchestrator is reached does not matter, because only the owner of its key can answer.

A *folder* (`understudy certs`, or a mounted Kubernetes TLS secret) has the authority's certificate in `ca.crt`: the orchestrator must
show one of that authority, for the name or address under which it is reached. `tls.crt` and `tls.key`, if they are there, are shown to
it: mutual TLS.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from understudy.messages import tools

_END = "-----END CERTIFICATE-----"


def trusting(place: str) -> ssl.SSLContext | None:
    """Return a context for the file or folder at `place`; None if that is an empty text.

    Raises `ssl.SSLError` or `OSError` when a file is missing or has no certificate.
    """
    if not place:
        return None
    if Path(place).is_dir():
        return _of_folder(Path(place))
    first, end, _ = Path(place).read_text(errors="replace").partition(_END)
    if not end:
        raise ssl.SSLError(tools.NO_CERTIFICATE(path=place))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=first + end)
    return context


def _of_folder(folder: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=folder / "ca.crt")
    if (folder / "tls.crt").exists():
        context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    return context
