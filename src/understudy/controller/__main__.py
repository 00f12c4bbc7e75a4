"""`python -m understudy.controller`, or `understudy kubernetes controller`: manage all UnderstudyJobs until stopped."""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import socket
import sys
from pathlib import Path

from prometheus_client import start_http_server

from understudy.common.console import say
from understudy.controller.controller import Controller
from understudy.controller.leader_election import LeaderElection
from understudy.messages import controller as messages
from understudy.schedulers.base import SchedulerFailed
from understudy.schedulers.kubernetes.api import Api
from understudy.schedulers.kubernetes.names import GROUP

NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def main(argv: list[str] | None = None) -> int:
    arguments = _parse(argv)
    here = arguments.own_namespace or (NAMESPACE.read_text().strip() if NAMESPACE.exists() else "default")
    try:
        api = Api.found()
        if arguments.metrics_port:
            start_http_server(arguments.metrics_port)
    except (SchedulerFailed, OSError) as error:
        say(str(error))
        return 2
    lead = LeaderElection(api, here, f"{socket.gethostname()} {secrets.token_hex(8)}", say)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    lead.wait()
    try:
        controller = Controller(api, arguments.group, arguments.image, arguments.namespace, arguments.drain_requests, say)
        say(messages.LOOKS_AFTER(group=arguments.group, namespace=f" in {arguments.namespace}" if arguments.namespace else ""))
        controller.run(lead)
    except SchedulerFailed as error:
        say(str(error))
        return 1
    finally:
        lead.give_up()
    say(messages.LOST_LEAD())
    return 1


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m understudy.controller", description=__doc__)
    parser.add_argument("--image", default=os.environ.get("UNDERSTUDY_IMAGE", ""), help="of orchestrators (or UNDERSTUDY_IMAGE)")
    parser.add_argument("--group", default=GROUP, help="of the resource, if the cluster has it under another one")
    parser.add_argument("--namespace", default="", help="look after the jobs of this one only")
    parser.add_argument("--own-namespace", default="", help="for the lock; default: that of this pod")
    parser.add_argument("--drain-requests", default="", help="GROUP/VERSION of NVSentinel's DrainRequests, if the cluster has them")
    parser.add_argument("--metrics-port", type=int, default=0, help="for /metrics, which also shows that it runs; 0: none")
    arguments = parser.parse_args(argv)
    if not arguments.image:
        parser.error(messages.IMAGE_NEEDED())
    return arguments


if __name__ == "__main__":
    sys.exit(main())
