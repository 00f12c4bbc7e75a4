"""Request nodes like those of a job from Slurm, and check the ones that it gives.

The job's properties are read from Slurm itself, because its options may have come from a command line, a script, the environment, a plugin
or the defaults of a partition. The resources of each node are taken from its list (`resources.py`), everything else from the job's record.

- Licenses belong to a job as a whole. A further node gets its share: four for four nodes are one more, and so is one for four.
- A constraint that counts nodes, or that only a set of nodes can meet (`[rack1|rack2]`), becomes the features of it that all nodes have.
- `--switches` has no meaning for one node: `network.py` requests one that is near.

Known limits: Slurm 22.05 shows `--prefer` as a constraint. Options that only plugins know (of SPANK, burst buffers) are not passed on.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Mapping

from understudy.messages import slurm
from understudy.schedulers.base import SchedulerAway, SchedulerFailed
from understudy.schedulers.slurm import commands, resources
from understudy.schedulers.slurm.chosen import MEMORY, SPECIALIZED
from understudy.schedulers.slurm.resources import Resources

MARGIN = 120  # minimum time in seconds of a claimed node, however soon the job's own time is over
PAUSE = 2.0  # seconds between two queries of a controller that is away
FIELDS = {
    "Partition": "partition",
    "QOS": "qos",
    "Account": "account",
    "Reservation": "reservation",
    "Features": "constraint",
    "Prefer": "prefer",
    "Licenses": "licenses",
    "Network": "network",
    "WCKey": "wckey",
    "MCS_label": "mcs-label",
    "CoreSpec": "core-spec",
    "ThreadSpec": "thread-spec",
    "MinMemoryNode": "mem",  # these two if Slurm counts no memory: a node of that size
    "MinMemoryCPU": "mem-per-cpu",
    "MinTmpDiskNode": "tmp",
    "TresFreq": "gpu-freq",
}
SHARING = {"NO": "--exclusive", "USER": "--exclusive=user", "MCS": "--exclusive=mcs", "YES": "--oversubscribe"}
NONE = ("", "(null)", "N/A", "0")


def needed(job: str, nodes: str) -> Resources:
    """Return the job's resources on each of these nodes (in Slurm's notation), or on each of all its nodes if it has none of them.

    Raises `SchedulerFailed`.
    """
    lines = resources.listed(commands.record(job))
    if not lines:
        raise SchedulerFailed(slurm.NOTHING_LISTED(job=job))
    if len(lines) > 1:
        ours = set(commands.expand(nodes))
        lines = {names: found for names, found in lines.items() if not ours.isdisjoint(commands.expand(names))} or lines
    return resources.least(lines.values())


def options(job: Mapping[str, str], count: int, node: Resources, theirs: Collection[str], now: float) -> list[str]:
    """Return the options of `sbatch` for one node like the `count` nodes with which this job began, for the job's remaining time.

    `job`: its record. `node`: the resources of the node, without those that the user's options (`theirs`) set. Raises `SchedulerFailed`.
    """
    left_out = {"mem", "mem-per-cpu"} if node.memory or MEMORY in theirs else set()
    left_out |= {"core-spec", "thread-spec"} if SPECIALIZED in theirs else set()
    fields = {name: option for name, option in FIELDS.items() if option not in left_out}
    given = {fields[name]: value for name, value in job.items() if name in fields and _says_something(value)}
    if given.get("prefer") == given.get("constraint", ""):
        del given["constraint"]
    if re.search(r"[\[*]", given.get("constraint", "")):
        given["constraint"] = _constraint(given["constraint"], job.get("NodeList", ""))
    if "licenses" in given:
        given["licenses"] = _share(given["licenses"], count)
    if "gpu-freq" in given:
        given["gpu-freq"] = given["gpu-freq"].removeprefix("gpu:")
    found = [f"--{name}={value}" for name, value in given.items()]
    found += [SHARING[job["OverSubscribe"]]] if job.get("OverSubscribe") in SHARING else []
    found += ["--gres-flags=enforce-binding"] if job.get("GresEnforceBind") == "Yes" else []
    return [*found, *node.options(), *_time(job, now)]


def _says_something(value: str) -> bool:
    """Return whether a value was set. An asterisk alone, or before the user's default (`WCKey`), is the value of a job without
    the option.
    """
    return value not in NONE and not value.startswith("*")


def _constraint(expression: str, nodes: str) -> str:
    """Return the features of this expression that all nodes of the job have; if there are none, any one of it."""
    words = [word for word in re.split(r"[][()&|,]+", re.sub(r"\*[0-9]+", "", expression)) if word]
    each = commands.features(nodes)
    shared = [word for word in dict.fromkeys(words) if each and all(word in features for features in each)]
    return "&".join(shared) if shared else "|".join(dict.fromkeys(words))


def _share(licenses: str, nodes: int) -> str:
    """Return the share of "app:4,disk" for one of these nodes."""
    return re.sub(r"([:=*])([0-9]+)", lambda found: f"{found[1]}{-(-int(found[2]) // nodes)}", licenses)


def _time(job: Mapping[str, str], now: float) -> list[str]:
    if job.get("TimeLimit") == "UNLIMITED":
        return ["--time=UNLIMITED"]  # not the partition's default
    try:
        left = time.mktime(time.strptime(job.get("EndTime", ""), "%Y-%m-%dT%H:%M:%S")) - now
    except (ValueError, OverflowError):
        return []
    return [f"--time={int(max(left, MARGIN)) // 60}"]


def unlike(wanted: Resources) -> str:
    """Compare the resources of this process's batch job with those wanted, and return what is missing, or "".

    Waits for a controller that is away.
    """
    node = os.environ.get("SLURMD_NODENAME", "")
    while True:
        try:
            given = needed(os.environ.get("SLURM_JOB_ID", ""), node)
        except SchedulerAway:
            time.sleep(PAUSE)
        except SchedulerFailed as error:
            return slurm.NOT_COMPARED(node=node, reason=str(error))
        else:
            missing = given.lacking(wanted)
            return slurm.LESS_THAN_THE_JOB(node=node, missing=missing) if missing else ""
