"""Trust for connections to the orchestrator: the job's own certificate, and no other.

The certificate itself is the anchor (the first one in the file, as servers present it), so it may sign itself, and the
name under which the orchestrator is reached does not matter: only the holder of its key can answer.
"""

from __future__ import annotations

import ssl
from pathlib import Path

_END = "-----END CERTIFICATE-----"


def trusting(certificate: str) -> ssl.SSLContext | None:
    """A context that accepts exactly a server with this certificate (PEM file); None if there is none.

    Raises `ssl.SSLError` or `OSError` when the file holds no certificate.
    """
    if not certificate:
        return None
    first, end, _ = Path(certificate).read_text(errors="replace").partition(_END)
    if not end:
        raise ssl.SSLError(f"{certificate} holds no certificate")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=first + end)
    return context
