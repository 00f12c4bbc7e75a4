"""The environment variables of Understudy: one table, from which docs/reference/environment.md is made.

`tests/project/test_environment.py` checks that every variable that the sources name is here. A variable that is the default of an option
has its meaning in the help of this option (`Use.OPTION`); `scripts/reference/environment.py` finds it there.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Use(StrEnum):
    """The purpose of a variable, which is its section on the page."""

    ACCESS = "Access to an orchestrator"
    OPTION = "Defaults of options"
    LIMIT = "Limits and switches of workers"
    PODS = "Pods of a JobSet"
    WORKER = "Set in workers"
    PLUGIN = "Network plugin for NCCL and RCCL"
    OTHER = "Variables of Python, torch and others"
    INTERNAL = ""  # between processes of Understudy: not for users, and not on the page


@dataclass(frozen=True)
class Variable:
    name: str
    use: Use
    meaning: str = ""
    default: str = ""  # in words; empty: none


VARIABLES = (
    Variable("UNDERSTUDY_TOKEN", Use.ACCESS, "Secret of the job or service, or a token derived from it. `--token-file` has precedence."),
    Variable(
        "UNDERSTUDY_TLS",
        Use.ACCESS,
        "Default of `--tls` of commands that connect to an orchestrator, and of `understudy orchestrator`: a certificate or a folder.",
    ),
    Variable("UNDERSTUDY_ORCHESTRATOR", Use.OPTION),
    Variable("UNDERSTUDY_DATABASE", Use.OPTION),
    Variable("UNDERSTUDY_SCHEDULER", Use.OPTION),
    Variable("UNDERSTUDY_DRILL", Use.OPTION),
    Variable("UNDERSTUDY_DRILL_BYTES", Use.OPTION),
    Variable("UNDERSTUDY_COMPARE_EVERY", Use.OPTION),
    Variable("UNDERSTUDY_STRICT", Use.OPTION),
    Variable("UNDERSTUDY_INTEGRATION", Use.OPTION),
    Variable("UNDERSTUDY_CHAOS", Use.OPTION),
    Variable("UNDERSTUDY_IMAGE", Use.OPTION),
    Variable(
        "UNDERSTUDY_LOCAL_LIMIT",
        Use.LIMIT,
        "Maximum size of the rank-local state that a rank sends to its buddies with a vote, in bytes.",
        "64 MiB",
    ),
    Variable(
        "UNDERSTUDY_SETUP_LIMIT",
        Use.LIMIT,
        "Maximum size of the results of collectives in the setup of the script that are kept for newcomers, in bytes. Registered state "
        "does not count. Not related to `--setup-limit`, which is a time.",
        "64 MiB",
    ),
    Variable(
        "UNDERSTUDY_OWN_TIME",
        Use.LIMIT,
        "How a worker measures the time that it spends on its own computation, to detect slow ranks. `0`: not at all. `device`: by "
        "CUDA events, for NCCL.",
        "a thread samples the main thread",
    ),
    Variable("UNDERSTUDY_FORK", Use.LIMIT, "`0`: each worker is a new process, not a fork of a process that has imported torch.", "fork"),
    Variable(
        "UNDERSTUDY_REJOIN",
        Use.LIMIT,
        "`0`: each generation gets new communicators, although torch (from 2.14) could reconnect those of Gloo in place.",
        "reconnect where torch can",
    ),
    Variable("UNDERSTUDY_JOBSET", Use.PODS, "Name of the JobSet. Set it in the manifest: see `deploy/kubernetes/trainer`."),
    Variable("UNDERSTUDY_JOBSET_JOB", Use.PODS, "Name of the pod's job in the JobSet: `node` (ranks) or `spare`."),
    Variable("UNDERSTUDY_SPARE_NODES", Use.PODS, "Number of pods that have only spares.", "0"),
    Variable(
        "UNDERSTUDY_NET_IFNAME",
        Use.PLUGIN,
        "Network interfaces that are rails, in the format of `NCCL_SOCKET_IFNAME`: prefixes with commas, `=` before exact names, "
        "`^` before what is excluded.",
        "`NCCL_SOCKET_IFNAME`, else all that are up, except loopback and bridges of containers",
    ),
    Variable("UNDERSTUDY_NET_SOCKETS", Use.PLUGIN, "TCP connections per rail of a communicator, 1 to 16.", "2"),
    Variable("UNDERSTUDY_NET_THREADS", Use.PLUGIN, "Threads of a process that move data, 1 to 64.", "2"),
    Variable("UNDERSTUDY_NET_CRC", Use.PLUGIN, "`1`: chunks, headers and replies have a CRC-32C checksum; a wrong one is sent again.", "0"),
    Variable(
        "UNDERSTUDY_NET_GIVE_UP_S",
        Use.PLUGIN,
        "Seconds, at least 3, without an answer of the peer on any rail, after which NCCL gets an error.",
        "300",
    ),
    Variable("UNDERSTUDY_NET_STATS", Use.PLUGIN, "Folder for counters of each rail, one file per process. It has to exist.", "no counters"),
    Variable("UNDERSTUDY_WORKER", Use.WORKER, "Name of the worker, such as `w3`."),
    Variable("UNDERSTUDY_RUN_DIR", Use.WORKER, "Folder of the run. It differs from run to run."),
    Variable("UNDERSTUDY_NODE", Use.WORKER, "Name of the node; on Kubernetes, of the pod."),
    Variable("UNDERSTUDY_DOMAIN", Use.WORKER, "Failure domain of the node."),
    Variable("UNDERSTUDY_ADDRESS", Use.WORKER, "Address of the node, at which workers listen."),
    Variable(
        "MASTER_ADDR",
        Use.WORKER,
        "Address of the node of rank 0, where Understudy runs a store that listens at `MASTER_PORT`. The other variables of torchrun are "
        "set, too.",
    ),
    Variable("MASTER_PORT", Use.WORKER, "Port on that node, chosen by the system. It is not the port of `--master-port`."),
    Variable(
        "PYTHONHASHSEED", Use.OTHER, "Seed of Python's hashes, the same on all nodes.", "a number that is derived from the name of the job"
    ),
    Variable("OMP_NUM_THREADS", Use.OTHER, "As in torchrun.", "1, if a node has several ranks"),
    Variable("TORCH_CPP_LOG_LEVEL", Use.OTHER, "Log level of torch's C++ code.", "`ERROR`"),
    Variable(
        "GLOO_SOCKET_IFNAME",
        Use.OTHER,
        "Network interfaces for Gloo, as in torch, and for transfers of state.",
        "the interface of the node's address",
    ),
    Variable("NCCL_RAS_ADDR", Use.OTHER, "Address of NCCL's RAS service, as in NCCL, for the detector `nccl-ras`."),
    Variable("PET_...", Use.OTHER, "Defaults of torchrun's options, as in torchrun; [the command line](cli.md#understudy-run) lists them."),
    Variable("UNDERSTUDY_CLAIM", Use.INTERNAL),
    Variable("UNDERSTUDY_HOST", Use.INTERNAL),
    Variable("UNDERSTUDY_KUBERNETES_JOB", Use.INTERNAL),
    Variable("UNDERSTUDY_NEED", Use.INTERNAL),
    Variable("UNDERSTUDY_OWNER", Use.INTERNAL),
    Variable("UNDERSTUDY_POD", Use.INTERNAL),
    Variable("UNDERSTUDY_RECORD", Use.INTERNAL),
    Variable("UNDERSTUDY_SILENT_FAULTS", Use.INTERNAL),
)
