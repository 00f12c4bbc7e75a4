"""Interpret torchrun's flags: one pure function from the flags to a `Launch`.

A flag does the same as in torchrun, or has no effect on a script there either, or is refused with the reason. Values that only torch knows
(`--nproc-per-node auto|gpu`) come from a separate process that imports torch, because the command line never imports it.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from understudy.cli.flags import Flags
from understudy.core.model import JobSpec, Timeouts
from understudy.detectors.choice import read_file
from understudy.messages import run_options
from understudy.policy.rules import BadPolicy, applied, default, parse, read

DEFAULT_PORT = 29500  # torchrun's


class Usage(ValueError):
    """The flags do not make sense together; the text is for the user."""


@dataclass(frozen=True)
class Launch:
    """What to start on this node."""

    spec: JobSpec
    timeouts: Timeouts
    policy: str  # the text of its file; empty: the built-in policy
    detectors: str  # the text of their file; empty if there is none
    node_rank: int
    program: tuple[str, ...]
    host: str  # the address on which the orchestrator listens
    port: int  # 0: the system chooses
    master: str  # the address at which the other nodes reach it
    endpoints: tuple[tuple[str, int], ...]  # hosts and ports of all orchestrators, on the first nodes; empty: one, on node 0
    local_addr: str | None
    domain: str
    labels: tuple[tuple[str, str], ...]
    claim_options: tuple[str, ...]  # scheduler options for nodes that are requested later
    role: str
    log_dir: str
    redirects: tuple[tuple[int, int], ...]
    tees: tuple[tuple[int, int], ...]
    shown_local_ranks: tuple[int, ...] | None
    signals: tuple[signal.Signals, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def alone(self) -> bool:
        """Whether no other node takes part, now or later."""
        return _alone(self.spec.nodes + self.spec.spare_nodes, self.spec.floating)


def _alone(nodes: int, floating: int) -> bool:
    return nodes == 1 and not floating


def ask_torch(kind: str) -> int:
    """Return torchrun's number for `--nproc-per-node KIND` on this machine."""
    code = "import sys; from torch.distributed.run import determine_local_world_size as size; print(size(sys.argv[1]))"
    answer = subprocess.run([sys.executable, "-c", code, kind], capture_output=True, text=True)
    if answer.returncode != 0:
        reason = (answer.stderr.strip().splitlines() or ["torch gave no reason"])[-1]
        raise Usage(run_options.WORKERS_UNKNOWN(value=kind, reason=reason))
    return int(answer.stdout.split()[-1])


def launch(flags: Flags, job: str, count: Callable[[str], int] = ask_torch, *, submitted: bool = False) -> Launch:
    """Return what to start for these flags. `job` names the run unless `--rdzv-id` does. A `submitted` job needs no address of node 0.
    Raises `Usage`.
    """
    _refuse(flags)
    ranked = _nodes(flags.nnodes)
    nodes = ranked + _spare_nodes(flags, submitted)
    node_rank = 0 if submitted else _node_rank(flags, nodes)
    workers = _workers(flags.nproc_per_node, count)
    spares = _spares(flags, workers)
    endpoints = () if submitted or flags.standalone else _endpoints(flags, nodes)
    master, port = ("", 0) if submitted else endpoints[min(node_rank, len(endpoints) - 1)] if endpoints else _master(flags, nodes)
    if "/" in flags.rdzv_id:
        raise Usage(run_options.JOB_NAME_SLASH(job=flags.rdzv_id))
    if not 0 <= flags.prepare <= spares:
        raise Usage(run_options.PREPARE_RANGE(prepare=flags.prepare, spares=spares))
    if flags.max_restarts is not None and flags.max_restarts < 0:
        raise Usage(run_options.NEGATIVE(option="--max-restarts"))
    drill_at = 0 if flags.drill == "off" else int(flags.drill) if flags.drill.isascii() and flags.drill.isdecimal() else -1
    if drill_at < 0 or flags.drill == "0":
        raise Usage(run_options.DRILL_FORM(value=flags.drill))
    if flags.require_drill and not (drill_at and spares and not flags.no_replenish):
        raise Usage(run_options.REQUIRE_DRILL())
    named = flags.rdzv_id != "none" and not flags.standalone
    spec = JobSpec(
        job=flags.rdzv_id if named else job,
        world_size=ranked * workers,
        workers_per_node=workers,
        nodes=ranked,
        spares=spares,
        spare_nodes=flags.spare_nodes,
        floating=flags.floating_spares,
        replenish=not flags.no_replenish,
        max_restarts=JobSpec.max_restarts if flags.max_restarts is None else flags.max_restarts,
        prepared=flags.prepare,
        drill_at=drill_at,
        require_drill=flags.require_drill,
        unproven=flags.unproven,
        keep_together=tuple(dict.fromkeys(flags.keep_together or ())),
    )
    policy = _policy(flags.policy)
    return Launch(
        spec=applied(spec, parse(policy, "policy") if policy else default()),
        timeouts=_timeouts(flags),
        policy=policy,
        detectors=_detectors(flags.detectors, submitted),
        node_rank=node_rank,
        program=_program(flags),
        host="127.0.0.1" if _alone(nodes, flags.floating_spares) else ("::" if ":" in master else "0.0.0.0"),
        port=port,
        master=master,
        endpoints=endpoints,
        local_addr=flags.local_addr,
        domain=flags.failure_domain,
        labels=labels(flags.label or []),
        claim_options=tuple(flags.floating_option or ()),
        role=flags.role,
        log_dir=str(Path(flags.log_dir).absolute()) if flags.log_dir else "",
        redirects=_streams("--redirects", flags.redirects),
        tees=_streams("--tee", flags.tee),
        shown_local_ranks=_ranks(flags.local_ranks_filter),
        signals=_signals(flags.signals_to_handle),
        notes=_notes(flags, nodes),
    )


def _refuse(flags: Flags) -> None:
    if flags.as_json and not flags.check:
        raise Usage(run_options.JSON_WITHOUT_CHECK())
    if flags.no_python and not flags.run_path:
        raise Usage(run_options.NO_PYTHON_REFUSED())
    if flags.virtual_local_rank:
        raise Usage(run_options.VIRTUAL_LOCAL_RANK_REFUSED())
    if flags.numa_binding is not None:
        raise Usage(run_options.NUMA_BINDING_REFUSED())
    if flags.logs_specs is not None:
        raise Usage(run_options.LOGS_SPECS_REFUSED())
    if flags.duplicate_stdout_filters or flags.duplicate_stderr_filters:
        raise Usage(run_options.DUPLICATE_FILTERS_REFUSED())


def _nodes(text: str) -> int:
    match = re.fullmatch(r"(\d+)(?::(\d+))?", text.strip())
    if match is None or int(match[1]) < 1:
        raise Usage(run_options.NODES_FORM(nnodes=text))
    low, high = int(match[1]), int(match[2] or match[1])
    if low != high:
        raise Usage(run_options.NODES_RANGE(nnodes=text, most=high))
    return low


def _spare_nodes(flags: Flags, submitted: bool) -> int:
    if flags.spare_nodes < 0:
        raise Usage(run_options.NEGATIVE(option="--spare-nodes"))
    if flags.spare_nodes and submitted:
        raise Usage(run_options.SPARE_NODES_SUBMITTED())
    return flags.spare_nodes


def _spares(flags: Flags, workers: int) -> int:
    """Return the number of all spares, including those on nodes without ranks."""
    if flags.spares is not None and flags.spares < 0:
        raise Usage(run_options.NEGATIVE(option="--spares"))
    if flags.floating_spares < 0:
        raise Usage(run_options.NEGATIVE(option="--floating-spares"))
    alongside = flags.spares if flags.spares is not None else (0 if flags.spare_nodes or flags.floating_spares else 1)
    return alongside + flags.spare_nodes * workers


def _node_rank(flags: Flags, nodes: int) -> int:
    if nodes > 1 and flags.standalone:
        raise Usage(run_options.STANDALONE_NODES(nodes=nodes))
    if nodes > 1 and flags.node_rank is None:
        raise Usage(run_options.NODE_RANK_NEEDED(nodes=_counted(flags, nodes), last=nodes - 1))
    rank = flags.node_rank or 0
    if not 0 <= rank < nodes:
        raise Usage(run_options.NODE_RANK_RANGE(node_rank=rank, last=nodes - 1, nodes=_counted(flags, nodes)))
    return rank


def _counted(flags: Flags, nodes: int) -> str:
    return f"--nnodes {nodes - flags.spare_nodes}" + (f" --spare-nodes {flags.spare_nodes}" if flags.spare_nodes else "")


def _workers(text: str, count: Callable[[str], int]) -> int:
    text = text.strip()
    if re.fullmatch(r"\d+", text):
        number = int(text)
    elif text == "cpu":
        number = len(os.sched_getaffinity(0))  # as torchrun does
    else:
        number = count(text)
    if number < 1:
        raise Usage(run_options.NO_WORKERS(value=text, count=number))
    return number


def _master(flags: Flags, nodes: int) -> tuple[str, int]:
    """Return host and port of the orchestrator, which replaces torchrun's rendezvous."""
    if flags.rdzv_backend not in ("static", "c10d"):
        raise Usage(run_options.RENDEZVOUS_REFUSED(backend=flags.rdzv_backend))
    if flags.standalone:
        return "127.0.0.1", 0
    host, port = (flags.master_addr or "").strip("[]"), flags.master_port
    if flags.rdzv_endpoint:
        host, port = _endpoint(flags.rdzv_endpoint)
    if _alone(nodes, flags.floating_spares):
        return "127.0.0.1", port or 0
    if not host:
        raise Usage(run_options.MASTER_NEEDED(nodes=_counted(flags, nodes)))
    return host, DEFAULT_PORT if port is None else port


def _endpoint(text: str) -> tuple[str, int | None]:
    host, _, tail = text.rpartition(":")
    if not host:
        host, tail = tail, ""
    if tail and not tail.isdigit():
        raise Usage(run_options.ENDPOINT_FORM(endpoint=text))
    return host.strip("[]"), int(tail) if tail else None


def _endpoints(flags: Flags, nodes: int) -> tuple[tuple[str, int], ...]:
    """Return hosts and ports of several orchestrators; empty if there is one."""
    texts = [text.strip() for text in flags.rdzv_endpoint.split(",")]
    if len(texts) < 2:
        return ()
    given = [_endpoint(text) for text in texts]
    endpoints = tuple((host, DEFAULT_PORT if port is None else port) for host, port in given)
    if not all(host and port for host, port in endpoints):
        raise Usage(run_options.ENDPOINTS_FORM(endpoints=flags.rdzv_endpoint))
    if len(set(endpoints)) < len(endpoints):
        raise Usage(run_options.ENDPOINT_TWICE(endpoints=flags.rdzv_endpoint))
    if len(endpoints) % 2 == 0:
        count = len(endpoints)
        raise Usage(run_options.ENDPOINTS_EVEN(count=count, majority=count // 2 + 1, fewer=count - 1))
    if len(endpoints) > nodes:
        raise Usage(run_options.ENDPOINTS_TOO_MANY(count=len(endpoints), nodes=nodes))
    return endpoints


def labels(given: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return a node's labels from KEY=VALUE texts. Raises `Usage`."""
    found: dict[str, str] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise Usage(run_options.LABEL_FORM(label=text))
        found[key] = value
    return tuple(found.items())


def _policy(file: Path | None) -> str:
    if file is None:
        return ""
    try:
        read(file)
        return file.read_text()
    except (BadPolicy, OSError) as error:
        raise Usage(run_options.POLICY_UNUSABLE(path=file, reason=str(error))) from error


def _detectors(file: Path | None, submitted: bool) -> str:
    if file is None:
        return ""
    if submitted:
        raise Usage(run_options.DETECTORS_SUBMITTED())
    try:
        return read_file(file)
    except ValueError as error:
        raise Usage(str(error)) from error


def _timeouts(flags: Flags) -> Timeouts:
    stop = flags.shutdown_timeout
    if stop is None and (given := os.environ.get("TORCH_ELASTIC_SHUTDOWN_TIMEOUT")):
        stop = int(given)
    default = Timeouts()
    limit = flags.hang_limit
    first = flags.setup_limit if flags.setup_limit is not None else max(default.hang_first, limit or 0.0)
    try:
        return Timeouts(
            hang_floor=default.hang_floor if limit is None else limit,
            hang_factor=default.hang_factor if limit is None else 1.0,
            hang_first=first,
            quiesce=min(default.quiesce, first),
            stop=default.stop if stop is None else stop,
            alone=default.alone if flags.alone_limit is None else flags.alone_limit,
            heartbeat=flags.heartbeat,
            node_lost=flags.node_timeout,
        )
    except ValueError as error:
        raise Usage(run_options.TIMEOUTS_REFUSED(reason=str(error))) from error


def _program(flags: Flags) -> tuple[str, ...]:
    if not flags.program:
        raise Usage(run_options.SCRIPT_NEEDED())
    script = flags.program[0]
    if flags.module:
        return ("-m", *flags.program)
    if not Path(script).is_file():
        raise Usage(run_options.SCRIPT_MISSING(script=script, folder=Path.cwd()))
    return tuple(flags.program)


def _streams(flag: str, text: str) -> tuple[tuple[int, int], ...]:
    """Parse torchrun's form of streams: `3` (for all) or `0:1,1:2` (by local rank); 0 none, 1 stdout, 2 stderr, 3 both."""
    pairs: list[tuple[int, int]] = []
    if re.fullmatch(r"[0-3]", text):
        pairs = [(-1, int(text))]
    elif re.fullmatch(r"\d+:[0-3](,\d+:[0-3])*", text):
        pairs = [(int(rank), int(which)) for rank, which in (part.split(":") for part in text.split(","))]
    else:
        raise Usage(run_options.STREAMS_FORM(option=flag, value=text))
    return tuple((rank, stream) for rank, which in pairs for stream in (1, 2) if which & stream)


def _ranks(text: str) -> tuple[int, ...] | None:
    if not text:
        return None
    try:
        return tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError as error:
        raise Usage(run_options.LOCAL_RANKS_FORM(value=text)) from error


def _signals(text: str) -> tuple[signal.Signals, ...]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    try:
        return tuple(signal.Signals[name] for name in names)
    except KeyError as error:
        raise Usage(run_options.SIGNAL_UNKNOWN(name=error.args[0])) from error


def _notes(flags: Flags, nodes: int) -> tuple[str, ...]:
    notes: list[str] = []
    if flags.rdzv_conf:
        notes.append(run_options.RENDEZVOUS_CONF_IGNORED())
    if flags.event_log_handler != "null":
        notes.append(run_options.EVENT_LOG_IGNORED())
    if _alone(nodes, flags.floating_spares) and flags.rdzv_endpoint and not flags.standalone:
        notes.append(run_options.ENDPOINT_HOST_IGNORED())
    return tuple(notes)
