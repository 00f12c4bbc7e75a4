"""A container's readiness, asked as a kubelet does: by a command, a request or a connection; `initialDelaySeconds`, `periodSeconds`,
`timeoutSeconds`, `successThreshold` and `failureThreshold` count. There are no liveness and startup probes.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import subprocess
import time

from tests.kubernetes.api import Object
from tests.kubernetes.runtime import Attempt


class Probe:
    def __init__(self, container: Object, attempt: Attempt, address: str) -> None:
        self._container, self._attempt, self._address = container, attempt, address
        self._how = container["readinessProbe"]
        self._due = time.monotonic() + self._how.get("initialDelaySeconds", 0)
        self._in_a_row = 0  # of answers of the other kind
        self.ready = False

    def ask(self) -> float:
        """If it is time to. Seconds until it is again."""
        if time.monotonic() >= self._due:
            answer = self._answers()
            self._in_a_row = 0 if answer == self.ready else self._in_a_row + 1
            threshold = self._how.get("successThreshold", 1) if answer else self._how.get("failureThreshold", 3)
            if self._in_a_row >= threshold:
                self.ready, self._in_a_row = answer, 0
            self._due = time.monotonic() + self._how.get("periodSeconds", 10)
        return float(self._due - time.monotonic())

    def _port(self, wanted: int | str) -> int:
        named = {port.get("name"): port["containerPort"] for port in self._container.get("ports") or []}
        return int(named.get(wanted, wanted))

    def _answers(self) -> bool:
        limit = self._how.get("timeoutSeconds", 1)
        try:
            if "exec" in self._how:
                command = self._attempt.command(*self._how["exec"]["command"])
                return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit).returncode == 0
            if "tcpSocket" in self._how:
                socket.create_connection((self._address, self._port(self._how["tcpSocket"]["port"])), limit).close()
                return True
            return self._asks(self._how["httpGet"], limit)
        except (OSError, http.client.HTTPException, subprocess.TimeoutExpired):
            return False

    def _asks(self, how: Object, limit: float) -> bool:
        port = self._port(how["port"])
        host = how.get("host") or self._address
        if how.get("scheme") == "HTTPS":  # a kubelet does not look at the certificate
            context = ssl._create_unverified_context()
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(host, port, timeout=limit, context=context)
        else:
            connection = http.client.HTTPConnection(host, port, timeout=limit)
        try:
            headers = {header["name"]: header["value"] for header in how.get("httpHeaders") or []}
            connection.request("GET", how.get("path", "/"), headers=headers)
            return 200 <= connection.getresponse().status < 400
        finally:
            connection.close()
