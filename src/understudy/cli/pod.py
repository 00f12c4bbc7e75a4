"""`understudy run` in a pod of a job on Kubernetes: serve the node that this pod is, as the controller has set in its environment.

The numbers of ranks and spares, and everything else that belongs to the job and not to the script, are in the job's resource. The end of a
pod does not end the job: when the pod is asked to end, its ranks leave first, within its grace period. The orchestrator reports when they
have left; if it does not, the pod ends by itself before it is killed.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from types import FrameType
from typing import get_type_hints

from pydantic import TypeAdapter, ValidationError

from understudy.agent.config import AgentConfig
from understudy.cli.flags import Flags
from understudy.cli.launch import Usage, launch
from understudy.cli.run_directory import RunDirectory
from understudy.cli.supervisor import Supervisor
from understudy.common.console import say
from understudy.common.names import TOKEN_VARIABLE
from understudy.core.model import Timeouts
from understudy.links.messages import ONLY
from understudy.messages import starting
from understudy.schedulers.kubernetes.names import ADDRESS_VARIABLE, HOST_VARIABLE, NODE_VARIABLE, POD_VARIABLE
from understudy.schedulers.kubernetes.pod_settings import PodSettings

MARGIN = 10  # seconds before the kill, for an orderly end
OURS = (  # flags that the resource replaces
    *("nnodes", "node_rank", "nproc_per_node", "spares", "spare_nodes", "floating_spares", "floating_option", "prepare", "no_replenish"),
    *("rdzv_endpoint", "rdzv_id", "rdzv_backend", "master_addr", "master_port", "local_addr", "standalone", "max_restarts", "drill"),
    *("require_drill", "unproven", "policy", "hang_limit", "alone_limit", "setup_limit", "shutdown_timeout", "heartbeat", "node_timeout"),
    *("token_file", "tls_cert"),
    *("tls_key", "failure_domain", "keep_together"),
)


def serve_pod(flags: Flags, name: str) -> int:
    """Serve until the job, or this pod's part in it, is over; return the exit code. Raises `Usage` and `NoRun`."""
    try:
        settings = TypeAdapter(PodSettings).validate_json(os.environ.pop(POD_VARIABLE))
        timeouts = TypeAdapter(Timeouts).validate_python(settings.timeouts)
    except ValidationError as error:
        raise Usage(starting.POD_VARIABLE_REFUSED(variable=POD_VARIABLE, reason=str(error))) from error
    default = Flags([])
    given = [field for field in OURS if getattr(flags, field) != getattr(default, field) and not _of_environment(field)]
    if given:
        names = ", ".join("--" + field.replace("_", "-") for field in given)
        raise Usage(starting.POD_OPTIONS_REFUSED(options=names))
    plan = launch(replace(flags, **{field: getattr(default, field) for field in OURS}), settings.job)
    run = RunDirectory.create(flags.run_dir, name)
    config = AgentConfig(
        job=ONLY,
        run_dir=run.path,
        node=os.environ[NODE_VARIABLE],
        node_rank=settings.number,
        address=os.environ[ADDRESS_VARIABLE],
        program=plan.program,
        workers_per_node=settings.ranks,
        spares=settings.spares,
        claim=settings.claim,
        domain=os.environ.get(HOST_VARIABLE, ""),
        labels=plan.labels,
        orchestrator=settings.orchestrators,
        certificate=settings.certificate,
        role=plan.role,
        timeouts=timeouts,
        shown_local_ranks=plan.shown_local_ranks,
        redirects=plan.redirects,
        tees=plan.tees,
        log_dir=plan.log_dir,
        detectors=plan.detectors,
        began=time.time(),
    )
    run.write_job({"job": ONLY, "orchestrator": config.orchestrator, "certificate": config.certificate, "started": time.time()})
    token = run.write_token(os.environ[TOKEN_VARIABLE])
    _wait_with_the_end(settings.grace)
    return Supervisor(run, config, token, None, 0, (signal.SIGINT,), say, several=True).run()


def _of_environment(field: str) -> bool:
    """Return whether an environment variable sets this option. It may be meant for others, such as torchrun."""
    (option,) = get_type_hints(Flags, include_extras=True)[field].__metadata__
    return bool(option.envvar and os.environ.get(option.envvar))


def _wait_with_the_end(grace: int) -> None:
    def asked(number: int, frame: FrameType | None) -> None:
        if not signal.getitimer(signal.ITIMER_REAL)[0]:
            say(starting.POD_ENDING())
            signal.setitimer(signal.ITIMER_REAL, max(1.0, grace - MARGIN))

    signal.signal(signal.SIGTERM, asked)
    signal.signal(signal.SIGALRM, lambda number, frame: os.kill(os.getpid(), signal.SIGINT))
