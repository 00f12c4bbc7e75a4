"""Trust for connections to the orchestrator: the job's own certificate, and no other."""

from __future__ import annotations

import ssl


def trusting(certificate: str) -> ssl.SSLContext | None:
    """A context that accepts a server with this certificate (or signed by it); None if there is none."""
    if not certificate:
        return None
    context = ssl.create_default_context(cafile=certificate)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # a certificate that signs itself is enough
    return context
