"""The coverage report: which losses this job survives, told once it is known."""

from __future__ import annotations

from understudy.core.coverage import Replicas
from understudy.worker.state import State, local_tensor


def coverage(replicas: Replicas, state: State, world_size: int) -> tuple[str, bool]:
    """One paragraph about whose state has a replica, and whether all has one. Small rank-local values go to buddies and do not count."""
    large = {
        name: local_tensor(tensor)
        for name, tensor in state.all_tensors().items()
        if ("/parameter/" in name or "/state/" in name) and not name.endswith("/gradient")
    }
    alone: dict[int, list[str]] = {}
    partners: dict[int, frozenset[int]] = {}
    for rank in range(world_size):
        entries = [e for e in replicas.entries(rank) if e in large]
        missing = [e for e in entries if not replicas.of(e, rank)]
        if missing:
            alone[rank] = missing
        sets = [frozenset(replicas.of(e, rank)) for e in entries]
        partners[rank] = frozenset.intersection(*sets) if sets else frozenset()
    if not alone:
        groups = sorted({tuple(sorted(partners[rank] | {rank})) for rank in range(world_size)})
        shown = "; ".join("ranks " + ", ".join(map(str, group)) for group in groups[:8]) + ("; ..." if len(groups) > 8 else "")
        text = (
            f"coverage: every rank has a replica, so the loss of any one rank is survived while spares last ({shown} hold the same state)"
        )
        return text, True
    who = f"rank {next(iter(alone))} holds" if len(alone) == 1 else f"ranks {', '.join(map(str, alone))} hold"
    example = next(iter(alone.values()))
    size = sum(large[e].numel() * large[e].element_size() for e in example) / 1e6
    text = (
        f"coverage: {who} state that no other rank has ({len(example)} tensors, {size:.1f} MB, {example[0]} for one): a "
        "loss of one of them CANNOT be survived. Add a replica dimension (for FSDP: a 2-D mesh, HSDP)"
    )
    return text, False
