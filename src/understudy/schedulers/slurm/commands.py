"""Run Slurm's commands in an environment that does not change their meaning.

Known limits: only the commands are used, because they are the stable interface; the REST daemon is not. Their output is requested in
formats of our own.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from understudy.messages import slurm
from understudy.schedulers.base import SchedulerAway, SchedulerFailed

SECONDS = 15.0  # limit of a command: a controller that is away is tried for `MessageTimeout`, and again
OVER = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE", "REVOKED")
MOST = 4 << 20  # characters of an answer that are read
OPTIONS = ("SLURM_", "SQUEUE_", "SINFO_", "SCANCEL_", "SCONTROL_")  # prefixes of variables that are options of these commands
AGAIN = re.compile(r"try again|Unable to contact|Socket timed out|Connection refused|DB index", re.IGNORECASE)


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the step's variables of its job (size, nodes, options) and the user's settings for lists.

    The commands would treat both as options.
    """
    return {name: value for name, value in given.items() if not name.startswith(OPTIONS) or name in ("SLURM_CONF", "SLURM_CLUSTERS")}


def run(*words: str, seconds: float = SECONDS, given: str = "", around: Mapping[str, str] | None = None) -> str:
    """Run a command with the input `given`, and return its output.

    `around`: its environment, if not that of this process. Raises `SchedulerAway` or `SchedulerFailed`.
    """
    if shutil.which(words[0]) is None:
        raise SchedulerFailed(slurm.NO_COMMAND(command=words[0]))
    try:
        clean = environment(os.environ if around is None else around)
        done = subprocess.run(words, input=given, capture_output=True, text=True, errors="replace", timeout=seconds, env=clean)
    except subprocess.TimeoutExpired:
        raise SchedulerAway(slurm.COMMAND_SILENT(command=words[0], seconds=seconds)) from None
    except OSError as error:
        raise SchedulerFailed(slurm.COMMAND_NOT_STARTED(command=words[0], reason=error.strerror)) from error
    if done.returncode != 0:
        answer = " ".join((done.stderr or done.stdout).split())[:500]
        text = slurm.COMMAND_REFUSED(command=" ".join(words[:3]), answer=answer or f"exit code {done.returncode}")
        raise SchedulerAway(text) if AGAIN.search(answer) else SchedulerFailed(text)
    return done.stdout[:MOST]


@dataclass(frozen=True)
class NodeLine:
    """A node in the output of `sinfo`."""

    name: str
    address: str
    state: str  # with its flag: "mixed*", "draining", "down~"
    reason: str
    user: str
    since: str  # a time in Slurm's format; "Unknown"


_RECORD = re.compile(r"^JobId=([0-9]+) ", re.MULTILINE)  # the beginning of each record
_FORMAT = "%N|%o|%T|%u|%H|%E"  # the reason is last: it may contain any character


def nodes(names: Collection[str] = ()) -> list[NodeLine]:
    """Return the nodes of these names, in any order; all if none is given."""
    words = ["sinfo", "--noheader", "--Node", f"--format={_FORMAT}"]
    lines = run(*words, *([f"--nodes={','.join(names)}"] if names else [])).split("\n")  # a reason may have other separators
    found: dict[str, NodeLine] = {}
    for line in lines:
        parts = [part.strip() for part in line.split("|", 5)]
        if len(parts) == 6:
            name, address, state, user, since, reason = parts
            found[name] = NodeLine(name, address, state.lower(), "" if reason == "none" else reason, user, since)
    return list(found.values())


def expand(names: str) -> tuple[str, ...]:
    """Return the names in "n[1-3],m7", in Slurm's order."""
    return tuple(run("scontrol", "show", "hostnames", names).split()) if names else ()


def listed_in(file: str) -> str:
    """Return the nodes that this file lists, in Slurm's notation."""
    return run("scontrol", "show", "hostlist", str(Path(file).absolute())).strip()


def features(nodes: str) -> list[set[str]]:
    """Return the present features of each of these nodes."""
    return [set(line.split(",")) for line in run("sinfo", "--noheader", "--Node", f"--nodes={nodes}", "--format=%b").split()]


def update(job: str, **changes: str) -> None:
    """Change fields of a job: `NodeList`, `Comment`."""
    run("scontrol", "update", f"JobId={job}", *(f"{name}={value}" for name, value in changes.items()))


def drain(names: Sequence[str], reason: str) -> None:
    run("scontrol", "update", f"NodeName={','.join(names)}", "State=DRAIN", f"Reason={reason}")


def batch(command: Sequence[str], *options: str, around: Mapping[str, str]) -> str:
    """Submit a job on one node that runs this command, and return its number.

    `around`: its environment, which is not in its script; variables that begin with SBATCH_ are options, too.
    """
    words = ["sbatch", "--parsable", "--export=ALL", "--nodes=1", "--ntasks=1", "--output=/dev/null", *options]
    return run(*words, given=f"#!/bin/sh\nexec {shlex.join(command)}\n", around=around).strip().partition(";")[0]


def cancel(job: str) -> None:
    run("scancel", "--quiet", job)


def state(job: str) -> str:
    """Return Slurm's name of the job's state; "" for a job that it has forgotten."""
    try:
        lines = [line.split("|") for line in run("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%A|%T").split()]
        return next((line[1] for line in lines if line[0] == job and len(line) == 2), "")
    except SchedulerAway:
        raise
    except SchedulerFailed as error:
        if "Invalid job id" in str(error):
            return ""
        raise


def run_on(node: str, job: str, *words: str) -> None:
    """Run a command in a further step of the job, which shares the resources of the other steps there."""
    options = ["--overlap", "--nodes=1", "--ntasks=1", "--gres=none", "--mem=0", "--output=none", "--error=none"]
    run("srun", "--quiet", f"--jobid={job}", f"--nodelist={node}", *options, *words, seconds=40.0)


def broadcast(job: str, file: str, there: str) -> None:
    """Copy `file` to `there` on every node of the job, for its owner only. Raises if that exists already."""
    run("sbcast", "--preserve", f"--jobid={job}", file, there, seconds=60.0)


def batch_host(job: str) -> str:
    """Return the node on which the job's script runs, or ran; "" if it has none."""
    found = fields(job)
    return found.get("BatchHost", "") if found.get("BatchFlag", "0") != "0" else ""


def record(job: str) -> str:
    """Return the output of `scontrol show job` after the job's name, which may contain any text; "" if there is none.

    If its number means an array or a heterogeneous job, all tasks or components are included, in any order.
    """
    return _records(job).get(job, "").partition(" UserId=")[2]


def fields(job: str) -> dict[str, str]:
    """Return the fields of the job's record by name."""
    return _fields(record(job))


def nodes_of(job: str) -> str:
    """Return the nodes of the job with all its components, in Slurm's notation; "" if it has none."""
    ours = [shown for number, shown in _records(job).items() if number == job or shown.startswith(f"HetJobId={job} ")]
    found = [_fields(shown.partition(" UserId=")[2]).get("NodeList", "(null)") for shown in ours]
    return ",".join(nodes for nodes in found if nodes != "(null)")


def _records(job: str) -> dict[str, str]:
    parts = _RECORD.split(run("scontrol", "show", "job", "--details", "--oneliner", job))
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _fields(shown: str) -> dict[str, str]:
    """Parse fields. The first of a name counts. Comments come last, because they may contain any text."""
    return dict(word.split("=", 1) for word in reversed(shown.split()) if "=" in word)


@dataclass(frozen=True)
class JobLine:
    """A job in the output of `squeue`."""

    number: str
    state: str
    node: str
    reason: str
    comment: str


def jobs(name: str) -> list[JobLine]:
    """Return this user's jobs of that name, including those that have ended recently."""
    words = ["squeue", "--noheader", f"--user={os.geteuid()}", f"--name={name}", "--states=all", "--format=%i|%T|%N|%r|%k"]
    lines = [line.split("|", 4) for line in run(*words).split("\n")]
    return [JobLine(*(part.strip() for part in line)) for line in lines if len(line) == 5]
