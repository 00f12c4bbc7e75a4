"""The CPUs, memory and generic resources (GRES) of a job on its nodes, as `scontrol show job --details` lists them.

The list does not depend on how the job was requested (`--gpus`, `--gpus-per-task`, `--mem-per-gpu`, whole nodes). So another node for the
job is requested by it, and compared with it when it is given. Slurm 20.02 and later print it in this form.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field

from understudy.schedulers.slurm.chosen import ALL_GRES, CPUS, MEMORY

_LINE = re.compile(r"\bNodes=(\S+) CPU_IDs=([0-9,-]*) Mem=([0-9]+) GRES=(\S*)")
SHARES = ("shard", "mps")  # of GPUs: Slurm rejects a request for both, and a whole node may have both
_SCALE = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}


@dataclass(frozen=True)
class Resources:
    """The resources of one job on one node. `cpus`, `memory` (in MiB): 0 if not counted. `gres`: by name and type, "gpu:a100"."""

    cpus: int = 0
    memory: int = 0
    gres: Mapping[str, int] = field(default_factory=dict)

    def options(self) -> list[str]:
        """Return the options of `sbatch` that request the same on one node."""
        found = [f"--cpus-per-task={self.cpus}"] if self.cpus else []
        found += [f"--mem={self.memory}M"] if self.memory else []
        return [*found, *self.gres_option()]

    def gres_option(self, others: str = "") -> list[str]:
        """Return the option that requests these generic resources and the `others`, if any. Only the last such option counts."""
        shares = SHARES if any(_name(key) == "gpu" for key in self.gres) else ()
        if asked := [f"{key}:{count}" for key, count in self.gres.items() if _name(key) not in shares]:
            return [f"--gres={','.join([others, *asked] if others else asked)}"]
        return []

    def without(self, names: Collection[str]) -> Resources:
        """Return the resources without those that one of the user's options sets (`chosen`)."""
        kept = {key: count for key, count in self.gres.items() if _name(key).lower() not in names and ALL_GRES not in names}
        return Resources(0 if CPUS in names else self.cpus, 0 if MEMORY in names else self.memory, kept)

    def lacking(self, needed: Resources) -> str:
        """Describe what is missing from these compared with `needed`; "" if nothing is."""
        pairs = [("CPUs", self.cpus, needed.cpus), ("MiB of memory", self.memory, needed.memory)]
        pairs += [(name, self.count(name), count) for name, count in needed.gres.items()]
        return ", ".join(f"{has} of {wanted} {name}" for name, has, wanted in pairs if has < wanted)

    def as_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of_json(cls, text: str) -> Resources:
        return cls(**json.loads(text))

    def count(self, name: str) -> int:
        """Return the number of a resource. A name without a type means all types."""
        return sum(count for key, count in self.gres.items() if key == name or _name(key) == name)


def listed(details: str) -> dict[str, Resources]:
    """Parse the resources of a job, by nodes in Slurm's notation ("n[1-3]"): those of one key have the same."""
    return {nodes: Resources(_cpus(cpus), int(memory), _gres(gres)) for nodes, cpus, memory, gres in _LINE.findall(details)}


def least(nodes: Collection[Resources]) -> Resources:
    """Return the resources that every one of these nodes has. If their types of a resource differ, only the number counts."""
    names = set.intersection(*({_name(key) for key in node.gres} for node in nodes))
    gres: dict[str, int] = {}
    for name in sorted(names):
        kinds = {frozenset(key for key in node.gres if _name(key) == name) for node in nodes}
        for key in sorted(next(iter(kinds))) if len(kinds) == 1 else [name]:
            gres[key] = min(node.count(key) for node in nodes)
    return Resources(min(node.cpus for node in nodes), min(node.memory for node in nodes), gres)


def _name(key: str) -> str:
    return key.partition(":")[0]


def _cpus(ids: str) -> int:
    """Count "0-3,8"."""
    spans = [part.split("-") for part in ids.split(",") if part]
    return sum(int(span[-1]) - int(span[0]) + 1 for span in spans)


def _gres(text: str) -> dict[str, int]:
    """Parse "gpu:a100:4(IDX:0,2-4),shard:1K". The devices' places on the node, in brackets, are ignored."""
    found: Counter[str] = Counter()
    for part in re.sub(r"\([^)]*\)", "", text).split(","):
        key, _, count = part.rpartition(":")
        number = re.fullmatch(r"([0-9]+)([KMGTP]?)", count)
        if key and number and int(number[1]):
            found[key] += int(number[1]) * _SCALE.get(number[2], 1)
    return dict(found)
