"""How much the network to each peer carries, in both directions, and whether it carries it as it was sent.

A peer is a node on which `understudy check-node --serve` runs. One after the other, each for `network_seconds` in each direction. `peers`
says how, and what it does not show. With no peer there is nothing to be tried out.
"""

from __future__ import annotations

import os
import socket

from understudy.checks import peers
from understudy.checks.base import Check, Figure, Result
from understudy.checks.options import Options, address
from understudy.checks.peers import Broken, Line, Received, Request
from understudy.common.bounds import plain

CONNECT = 10.0  # seconds
SLACK = 20.0  # seconds beside those of sending


class Network(Check):
    name = "network"

    def __init__(self, options: Options, token: str = "") -> None:
        super().__init__(options, token)
        self.limit = 30.0 + len(options.peers) * (2 * options.network_seconds + CONNECT + peers.HANDSHAKE + SLACK)

    def missing(self) -> str:
        return "" if self.options.peers else "there is no peer to measure with (--peer; understudy check-node --serve on another node)"

    def run(self) -> Result:
        failures, figures = list[str](), list[Figure]()
        for peer in self.options.peers:
            try:
                sent, received = self._measured(peer)
            except Broken as problem:
                failures.append(f"{peer}: {problem}")
                continue
            figures.append(Figure(name=f"to {peer}", value=sent.gbits, unit="Gbit/s"))
            figures.append(Figure(name=f"from {peer}", value=received.gbits, unit="Gbit/s"))
            for way, found in ((f"to {peer}", sent), (f"from {peer}", received)):
                if found.wrong:
                    failures.append(f"{way}: {found.wrong} of {found.count} MiB arrive otherwise than they were sent")
                if found.gbits < self.options.min_gbits:
                    failures.append(f"{way}: {found.gbits:.2f} Gbit/s, {self.options.min_gbits:g} are wanted (--min-gbits)")
        lowest = min((figure.value for figure in figures), default=0.0)
        return self.judged(failures, f"at least {lowest:.2f} Gbit/s to and from each peer", figures)

    def _measured(self, peer: str) -> tuple[Received, Received]:
        """What arrived there, and here. Raises `Broken`."""
        seconds = self.options.network_seconds
        try:
            connection = socket.create_connection(address(peer), CONNECT)
        except TimeoutError:
            raise Broken(f"does not answer within {CONNECT:g} s") from None
        except OSError as error:
            asked = "; is `understudy check-node --serve` running there?" if isinstance(error, ConnectionRefusedError) else ""
            raise Broken(f"cannot be reached: {plain(str(error.strerror or error))}{asked}") from error
        request = Request(seconds, int.from_bytes(os.urandom(8), "big"))
        upwards, downwards = peers.both(request.seed)
        with connection:
            line = Line(connection, peers.HANDSHAKE)
            peers.introduce(line, self.token, request)
            line.allow(2 * seconds + SLACK)
            upwards.send(line, seconds)
            sent = Received.read(line.receive(Received.form.size))
            received = downwards.receive(line)
        if not (sent.count and received.count):
            raise Broken("nothing was sent: more time is needed (--seconds)")
        return sent, received
