"""The start of a worker: warms up, waits for a rank, runs the script.

    python -m understudy.worker --worker w3 --fd 5 --outputs 7 8 --page FILE -- script.py ARGUMENTS...

Started by the agent only, or forked from its template (`--template`, see `worker.process.template`). First ranks and spares
start the same way; who takes which rank is the orchestrator's decision.
"""

from __future__ import annotations

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]  # the folder where the job was started: a script's own `queue` there must not be imported by us

import argparse
import contextlib
import faulthandler
import gc
import os
import resource
import signal
import socket
from pathlib import Path
from types import FrameType
from typing import Any

from understudy.common.names import INTEGRATION_VARIABLE, OWN_TIME_VARIABLE
from understudy.common.page_view import Activity, Process
from understudy.core.events import Notice, ScriptFailed, WorkerWarm
from understudy.links import messages
from understudy.links.lifeline import Lifeline
from understudy.links.page import PageWriter
from understudy.messages import script as script_rules
from understudy.messages import worker_processes
from understudy.worker import script
from understudy.worker.api import session
from understudy.worker.doctor import start
from understudy.worker.guards import loop_variables as names
from understudy.worker.process import template
from understudy.worker.process.control import Control
from understudy.worker.process.debugging import quit_goes_on
from understudy.worker.process.own_time import DeviceOwnTime, OwnTime
from understudy.worker.process.preload import import_torch, script_source, warm_imports, warm_torch
from understudy.worker.process.template import Forked


def _options() -> tuple[argparse.Namespace, list[str]]:
    """Parse the worker's own options, and the script with its arguments."""
    parser = argparse.ArgumentParser(prog="understudy.worker", description=__doc__)
    parser.add_argument("--worker", required=True)
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--outputs", type=int, nargs=2, default=(-1, -1), help="where its stdout and stderr can be read")
    parser.add_argument("--page", type=Path, required=True)
    parser.add_argument("--template", action="store_true", help="import torch, then fork a worker for each request on --fd")
    parser.add_argument("script", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    arguments = options.script[1:] if options.script[:1] == ["--"] else options.script
    if not arguments:
        parser.error(worker_processes.NO_SCRIPT())
    return options, arguments


def main() -> None:
    options, arguments = _options()
    module = arguments[0] == "-m"
    sys.argv = ["-m", *arguments[2:]] if module else list(arguments)  # before anything is imported that may read it, like `python SCRIPT`

    agent, worker, link, page_path = os.getppid(), options.worker, options.fd, options.page
    outputs = (options.outputs[0], options.outputs[1])
    if options.template:
        forked = _template(link)
        agent, worker, link, page_path = forked.agent, forked.request.worker, forked.link, Path(forked.request.page)
        outputs = forked.outputs
    if os.getppid() != agent:
        os.kill(os.getpid(), signal.SIGKILL)  # it has died, and the next one knows nothing of this worker
    faulthandler.enable()
    _allow_descriptors()
    connection = socket.socket(fileno=link)
    for fd in (link, *outputs):
        os.set_inheritable(fd, False)
    page = PageWriter(page_path)
    control = Control(connection, worker, page, Lifeline(None if page.trouble else page_path), outputs, page_path.parent)
    control.start()
    if page.trouble:
        control.send(Notice(worker, -1, worker_processes.NO_PAGE(worker=worker, why=page.trouble)))

    if not options.template and (why := start.refusal()):
        _refuse(control, why)
    server = _warm(arguments)
    page.enter(Activity.WARM, -1)
    control.send(_warm_event(worker, server))
    control.wait_for(lambda: control.role is not None or control.released is not None)
    role = control.role
    if role is None:
        assert control.released is not None
        os._exit(control.released.exit_code)
    os.environ.update(role.environment)
    session.current = session.Session(control, role, server)
    page.enter(Activity.SETUP, -1, process=Process.UNJOINED)
    _listen(session.current, page)
    script.run(control, arguments, module)


def _allow_descriptors() -> None:
    """Raise the number of descriptors that this process may open to the hard limit.

    Anything that reaches a worker may connect to it. Our own listeners close what does not introduce itself (`transport/strangers.py`);
    Gloo's accept everything, and end the process when no descriptor is left.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _listen(here: session.Session, page: PageWriter) -> None:
    """Install the tools that watch the script from outside, most of them only if requested."""
    from understudy.worker.guards import default_store, own_group

    default_store.refuse()
    own_group.watch(lambda where: _report_unprotected(here.control, where), _take_over)
    if (own_time := os.environ.get(OWN_TIME_VARIABLE)) != "0":
        (DeviceOwnTime(page, here.control.own_share) if own_time == "device" else OwnTime(page, here.control.at_work)).start()
    if os.environ.get("UNDERSTUDY_SILENT_FAULTS"):
        from understudy.worker.fault_injection import silent

        here.when_joined = silent.install
    if os.environ.get("UNDERSTUDY_RECORD"):
        from understudy.worker import recorder  # as below; before it, so that a rank that is paused has reported its commit

        recorder.install()
    if os.environ.get("UNDERSTUDY_CHAOS") == "1":
        from understudy.worker.fault_injection import chaos  # not loaded in any other job, where it costs nothing

        chaos.install()
    if here.newcomer:
        from understudy.worker.guards.file_access import FileAccessGuard

        here.opened = FileAccessGuard()
        here.opened.install()


def _report_unprotected(control: Control, where: str) -> None:
    control.send(Notice(control.worker, int(os.environ["RANK"]), script_rules.OWN_PROCESS_GROUP(where=where)))


def _take_over(frame: FrameType, backend: Any) -> bool:
    """Make the process group for the trainer that calls the code of `frame`, if there is an integration for it."""
    from understudy.worker.integrations.registry import take_over_group

    if os.environ.get(INTEGRATION_VARIABLE) == "none":
        return False

    def join() -> tuple[Any, Any]:
        from understudy.worker.api.job import join as join_job

        job, here = join_job(backend), session.current
        assert here is not None and here.runtime is not None
        return job, here.runtime.state

    return take_over_group(frame, join)


def _warm_event(worker: str, server: Any) -> WorkerWarm:
    import torch

    from understudy.worker.transport.backends.registry import rejoining

    return WorkerWarm(worker, server.address, torch=str(torch.__version__), rejoins=rejoining())


def _template(fd: int) -> Forked:
    """Become the template; return in the workers that are forked from it."""
    connection = socket.socket(fileno=fd)
    connection.set_inheritable(False)
    if why := start.refusal():
        sys.exit(why)  # which the agent reports: no worker can be started
    gc.disable()  # `serve` enables it in each worker
    _import()
    return template.serve(connection)


def _import() -> None:
    """Import what every worker needs."""
    messages.prepare()
    import_torch()
    quit_goes_on()
    import understudy.worker.api.job
    import understudy.worker.census.roots
    import understudy.worker.encoding.messages
    import understudy.worker.transport.rendezvous
    from understudy.extensions import entries
    from understudy.worker.devices.device_errors import GROUP as DEVICE_ERRORS
    from understudy.worker.frameworks.registry import GROUP as FRAMEWORKS
    from understudy.worker.transport.backends.registry import GROUP as BACKENDS

    understudy.worker.encoding.messages.prepare()
    understudy.worker.census.roots.prepare()
    for group in (BACKENDS, FRAMEWORKS, DEVICE_ERRORS):
        with contextlib.suppress(ValueError):  # their first use reports it
            entries(group)


def _warm(arguments: list[str]) -> Any:
    _import()
    warm_torch()
    if not sys.flags.safe_path:  # only now: its modules must not displace any that were imported above
        sys.path.insert(0, os.getcwd() if arguments[0] == "-m" else str(Path(arguments[0]).resolve().parent))
    source = script_source(arguments)
    if arguments[0] == "-m" and source is not None:
        sys.argv[0] = str(source)
    own = warm_imports(source)
    for file in {sys.argv[0], *map(str, own)}:  # under the names that the code of the script will have
        names.prepare(file)
    from understudy.worker.transport.rendezvous import StoreServer, node_address

    return StoreServer(node_address())


def _refuse(control: Control, why: str) -> None:
    """End the job, before this worker has a rank, because no worker can work here."""
    control.send(ScriptFailed(control.worker, -1, 0, why, "", 1))
    control.wait_for(lambda: control.released is not None, timeout=30.0)
    os._exit(1)


if __name__ == "__main__":
    main()
