"""What a user's own options of `sbatch` for claimed nodes (`--floating-option`) ask for: of that, what the job has does not count.

Only those are asked about that say how much a node is to have, and those that Slurm refuses next to ours (`--mem-per-cpu` next to `--mem`).
They are read as sbatch reads them: long names may be abbreviated, a value may be a word of its own, and short options may be one word.
`--exclusive` and numbers of tasks only add to what is asked for, so they are none of these.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

CPUS, MEMORY, SPECIALIZED, ALL_GRES = "cpu", "mem", "spec", "none"
GPUS = frozenset({"gpu", "shard", "mps"})  # shares of GPUs are not asked for together with GPUs
_LISTS = ("gres", "tres-per-task")  # the names are in their values
_KINDS = {
    "cpus-per-task": {CPUS},
    "cpus-per-gpu": {CPUS},
    "mem": {MEMORY},
    "mem-per-cpu": {MEMORY},
    "mem-per-gpu": {MEMORY},
    "gpus": GPUS,
    "gpus-per-node": GPUS,
    "gpus-per-socket": GPUS,
    "gpus-per-task": GPUS,
    "core-spec": {SPECIALIZED},
    "thread-spec": {SPECIALIZED},
}
_SHORT = {"c": "cpus-per-task", "G": "gpus", "S": "core-spec"}
_SHORT_WORD = re.compile(r"-[hHkOQsvVW]*([cGS])")  # after short options without a value


def chosen(options: Sequence[str]) -> frozenset[str]:
    """Return `CPUS`, `MEMORY`, `SPECIALIZED` and names of generic resources, as far as these options set them; `ALL_GRES` if they want none
    of these.
    """
    found: set[str] = set()
    for name, value in _read(options):
        found |= _KINDS[name] if name in _KINDS else {_named(part) for part in value.split(",")}
    return frozenset(found | GPUS if found & GPUS else found)


def gres(options: Sequence[str]) -> str:
    """Return the value of `--gres` in these options, of which the last counts; "" if there is none."""
    values = [value for name, value in _read(options) if name == "gres"]
    return values[-1] if values else ""


def _read(options: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Those of these options that matter here, by their long names, with their values."""
    for word, after in pairwise([*options, ""]):
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            known = [*_KINDS, *_LISTS]
            if name not in known:
                name = next((full for full in known if name and full.startswith(name)), "")
            if name:
                yield name, value if equals else after
        elif short := _SHORT_WORD.match(word):
            yield _SHORT[short[1]], ""  # their values are not asked for


def _named(part: str) -> str:
    """Of "gpu:a100:4", "gres/gpu=4", "cpu:4", the name."""
    return re.split(r"[:=]", re.sub(r"^gres[:/]", "", part.strip().lower()))[0]
