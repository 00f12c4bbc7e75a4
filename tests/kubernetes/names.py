"""The cluster's names, in place of CoreDNS: answers for Services and for the pods of headless ones, according to the Endpoints.

    python -m tests.kubernetes.names ADDRESS PORT AUTHORITY TOKEN

The real controller-manager keeps the Endpoints, so that pods that are not ready have no name, unless their Service publishes them. Names
are `SERVICE.NAMESPACE.svc.cluster.local` and `HOSTNAME.SERVICE.NAMESPACE.svc.cluster.local`; pods have the usual search list, so that
the shorter ones work, too.

Simpler than in reality: a Service with a cluster address is answered with the addresses of its pods, because there is no kube-proxy
(so its port must be theirs); only addresses are answered; no other name is known, and no other server is asked.
"""

from __future__ import annotations

import socket
import struct
import sys
import threading
from pathlib import Path

from tests.kubernetes.api import Access, Api, Follower, Object

DOMAIN = "svc.cluster.local"
A, IN = 1, 1
NO_SUCH_NAME = 3


class Names:
    def __init__(self) -> None:
        self._of: dict[str, dict[str, list[str]]] = {}  # by the uid of the Endpoints
        self._lock = threading.Lock()

    def tell(self, uid: str, endpoints: Object | None) -> None:
        with self._lock:
            self._of.pop(uid, None)
            if endpoints is not None:
                self._of[uid] = self._named(endpoints)

    def _named(self, endpoints: Object) -> dict[str, list[str]]:
        service = f"{endpoints['metadata']['name']}.{endpoints['metadata']['namespace']}.{DOMAIN}"
        found: dict[str, list[str]] = {service: []}
        for part in endpoints.get("subsets") or []:
            for address in part.get("addresses") or []:
                found[service].append(address["ip"])
                if hostname := address.get("hostname"):
                    found.setdefault(f"{hostname}.{service}", []).append(address["ip"])
        return found

    def addresses(self, name: str) -> list[str] | None:
        """None where there is no such name."""
        with self._lock:
            return next((named[name] for named in self._of.values() if named.get(name)), None)


def answer(names: Names, asked: bytes) -> bytes:
    """RFC 1035, section 4; one question, and an address that is not kept."""
    labels, place = [], 12
    while length := asked[place]:
        labels.append(asked[place + 1 : place + 1 + length].decode("ascii", "replace").lower())
        place += 1 + length
    kind, family = struct.unpack_from("!HH", asked, place + 1)
    question = asked[12 : place + 5]
    found = names.addresses(".".join(labels))
    records = found if found and (kind, family) == (A, IN) else []
    flags = 0x8580 | (0 if found else NO_SUCH_NAME)
    head = asked[:2] + struct.pack("!HHHHH", flags, 1, len(records), 0, 0)
    return head + question + b"".join(struct.pack("!HHHIH4s", 0xC00C, A, IN, 0, 4, socket.inet_aton(record)) for record in records)


def main() -> None:
    address, port, authority, token = sys.argv[1:]
    names = Names()
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((address, 53))
    Follower(Api(Access(address, int(port), Path(authority), token)), "/api/v1/endpoints", names.tell).start()
    while True:
        asked, who = server.recvfrom(512)
        try:
            server.sendto(answer(names, asked), who)
        except (IndexError, struct.error, OSError):
            continue  # not a question, or the client has gone


if __name__ == "__main__":
    main()
