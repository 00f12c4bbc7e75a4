"""A stand-in for `understudy.worker`: started with the same command line, with the same protocol, without torch.

The tests of the agent are about processes, sockets, signals and output. A worker that starts in a tenth of a second and
does exactly what a test asks for lets them be many and fast; tests of the whole use the real worker. Its "script" is a
Python file that is executed on `Assign` with `say(event)`, `commands` (later commands arrive there) and `me`; with
`--at-start` as the script's first argument it is executed before the worker reports that it is warm.
"""

from __future__ import annotations

import argparse
import os
import queue
import runpy
import socket
import sys
import threading
from pathlib import Path

from understudy.common.page_view import Activity
from understudy.core import commands, events
from understudy.links import messages
from understudy.links.page import PageWriter


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--worker", required=True)
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--outputs", type=int, nargs=2)
    parser.add_argument("--page", type=Path, required=True)
    parser.add_argument("program", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    script, *rest = arguments.program[1:]  # the first is "--"
    me: str = arguments.worker
    page = PageWriter(arguments.page)
    page.beat(0)
    link = socket.socket(fileno=arguments.fd)
    lines = link.makefile("rb")
    inbox: queue.Queue[messages.Message] = queue.Queue()

    def say(event: events.Event) -> None:
        link.sendall(messages.encode(event).encode() + b"\n")

    def listen() -> None:
        for line in lines:
            message = messages.decode(line)
            if isinstance(message, commands.Release):
                sys.stdout.flush()
                os._exit(message.exit_code)
            inbox.put(message)
        os._exit(0)  # the agent is gone

    names = {"say": say, "commands": inbox, "me": me, "page": page, "link": link}
    if rest[:1] == ["--at-start"]:
        runpy.run_path(script, init_globals=names, run_name="__main__")
    page.enter(Activity.WARM, -1)
    say(events.WorkerWarm(me, "127.0.0.1:1"))
    threading.Thread(target=listen, daemon=True).start()
    while not isinstance(assign := inbox.get(), commands.Assign):
        pass
    os.environ.update(assign.environment)
    if rest[:1] != ["--at-start"]:
        sys.argv = [script, *rest]
        runpy.run_path(script, init_globals=names, run_name="__main__")
    page.committed(1, 0.0)
    page.enter(Activity.FINISHED, 1)
    say(events.Committed(me, assign.generation, 0, 1))
    say(events.Finished(me, assign.generation))
    threading.Event().wait()  # until released


main()
