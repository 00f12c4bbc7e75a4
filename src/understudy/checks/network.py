"""Measure how much the network to each peer carries, in both directions, and whether it arrives as it was sent.

A peer is a node on which `understudy check-node --serve` runs. Peers are tested one after the other, each for `network_seconds` in each
direction. `peers` describes how, and what this does not show. Without a peer there is nothing to test.
"""

from __future__ import annotations

import os
import socket

from understudy.checks import peers
from understudy.checks.base import Check, Figure, Result
from understudy.checks.options import Options, address
from understudy.checks.peers import Broken, Line, Received, Request
from understudy.common.bounds import plain
from understudy.messages import network_check

CONNECT = 10.0  # seconds
SLACK = 20.0  # seconds in addition to those of sending


class Network(Check):
    name = "network"

    def __init__(self, options: Options, token: str = "") -> None:
        super().__init__(options, token)
        self.limit = 30.0 + len(options.peers) * (2 * options.network_seconds + CONNECT + peers.HANDSHAKE + SLACK)

    def missing(self) -> str:
        return "" if self.options.peers else network_check.NO_PEER()

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
                    failures.append(network_check.CORRUPT(way=way, wrong=found.wrong, count=found.count))
                if found.gbits < self.options.min_gbits:
                    failures.append(network_check.SLOW(way=way, gbits=found.gbits, wanted=self.options.min_gbits))
        lowest = min((figure.value for figure in figures), default=0.0)
        return self.judged(failures, network_check.CARRIES(least=lowest), figures)

    def _measured(self, peer: str) -> tuple[Received, Received]:
        """Return what arrived at the peer, and here. Raises `Broken`."""
        seconds = self.options.network_seconds
        try:
            connection = socket.create_connection(address(peer), CONNECT)
        except TimeoutError:
            raise Broken(network_check.NO_ANSWER(seconds=CONNECT)) from None
        except OSError as error:
            refused = isinstance(error, ConnectionRefusedError)
            message = network_check.NOT_LISTENING if refused else network_check.UNREACHABLE
            raise Broken(message(reason=plain(str(error.strerror or error)))) from error
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
            raise Broken(network_check.NOTHING_SENT())
        return sent, received
