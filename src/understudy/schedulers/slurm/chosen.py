"""Parse the user's `sbatch` options for claimed nodes (`--floating-option`); they replace the job's values of the same kind.

Only those are parsed that define how much a node must have, and those that Slurm rejects in combination with ours (`--mem-per-cpu` with
`--mem`). They are read as sbatch reads them: long names may be abbreviated, a value may be a separate word, and short options may be one
word. Excluded nodes are read, too, because ours are added to them. `--exclusive` and numbers of tasks only add to the request, so they are
not parsed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

CPUS, MEMORY, SPECIALIZED, ALL_GRES = "cpu", "mem", "spec", "none"
GPUS = frozenset({"gpu", "shard", "mps"})  # shares of GPUs are not requested together with GPUs
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
_KNOWN = (*_KINDS, *_LISTS, "exclude")
_SHORT = {"c": "cpus-per-task", "G": "gpus", "S": "core-spec", "x": "exclude"}
_SHORT_WORD = re.compile(r"-[hHkOQsvVW]*([cGSx])(.*)")  # after short options without a value


def chosen(options: Sequence[str]) -> frozenset[str]:
    """Return which of `CPUS`, `MEMORY`, `SPECIALIZED` and generic resources (by name) these options set; `ALL_GRES` if they exclude all
    GRES.
    """
    found: set[str] = set()
    for name, value in _read(options):
        if name in _LISTS:
            found.update(_named(part) for part in value.split(","))
        found.update(_KINDS.get(name, ()))
    return frozenset(found | GPUS if found & GPUS else found)


def last(wanted: str, options: Sequence[str]) -> str:
    """Return the last value of "gres" or "exclude" in these options, which is the one that counts; "" if there is none."""
    return next((value for name, value in reversed([*_read(options)]) if name == wanted), "")


def _read(options: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the relevant options, by their long names, with their values."""
    for word, after in pairwise([*options, ""]):
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            if name not in _KNOWN:
                name = next((full for full in _KNOWN if name and full.startswith(name)), "")
            if name:
                yield name, value if equals else after
        elif short := _SHORT_WORD.match(word):
            yield _SHORT[short[1]], short[2] or after


def _named(part: str) -> str:
    """Return the name in "gpu:a100:4", "gres/gpu=4", "cpu:4"."""
    return re.split(r"[:=]", re.sub(r"^gres[:/]", "", part.strip().lower()))[0]
