"""What a script of the conformance suite tells of its run: a line for each step or evaluation, and its whole state at the end.

Each rank appends lines to TRACE_OUT/lines-RANK.jsonl and writes TRACE_OUT/final-RANK.json, with a digest in place of everything that is
no plain number. Runs are compared by these files, bit for bit: a line that is missing belongs to a worker that was killed before it
wrote it, a line that differs is a wrong result.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy
import torch
from torch.distributed.tensor import DTensor


def digest(thing: Any) -> Any:
    """`thing` itself if it is a plain number or string, containers with digests inside, else a digest of its bits."""
    if thing is None or isinstance(thing, bool | int | str):
        return thing
    if isinstance(thing, float):
        return thing.hex()
    if isinstance(thing, torch.Tensor):
        local = thing._local_tensor if isinstance(thing, DTensor) else thing
        plain = local.detach().cpu()
        if plain.layout != torch.strided:
            plain = plain.to_dense()
        plain = plain.clone().contiguous()
        return f"{plain.dtype} {tuple(plain.shape)} {_hash(plain.reshape(-1).view(torch.uint8).numpy().tobytes())}"
    if isinstance(thing, numpy.ndarray):
        return f"{thing.dtype} {thing.shape} {_hash(thing.tobytes())}"
    if isinstance(thing, numpy.generic):
        return digest(thing.item())
    if isinstance(thing, Mapping):
        return {str(key): digest(value) for key, value in thing.items()}
    if isinstance(thing, set | frozenset):
        return sorted(str(digest(item)) for item in thing)
    if isinstance(thing, list | tuple):
        return [digest(item) for item in thing]
    if isinstance(thing, bytes):
        return _hash(thing)
    return f"a {type(thing).__qualname__}"


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:24]


def state_of(thing: Any) -> Any:
    """All that makes up the state of a module, an optimizer, a generator, or of anything else with a `state_dict`."""
    if isinstance(thing, torch.nn.Module):
        found: dict[str, Any] = {f"parameter {name}": digest(p) for name, p in thing.named_parameters()}
        found |= {f"buffer {name}": digest(b) for name, b in thing.named_buffers()}
        found |= {f"training {name}": part.training for name, part in thing.named_modules()}
        found |= {f"requires_grad {name}": p.requires_grad for name, p in thing.named_parameters()}
        return found
    if isinstance(thing, torch.optim.Optimizer):
        groups = [{k: digest(v) for k, v in group.items() if k != "params"} for group in thing.param_groups]
        parameters = [p for group in thing.param_groups for p in group["params"]]
        return {"groups": groups, "state": {str(n): digest(thing.state.get(p, {})) for n, p in enumerate(parameters)}}
    if isinstance(thing, torch.Generator):
        return digest(thing.get_state())
    if isinstance(thing, numpy.random.Generator):
        return digest(json.dumps(thing.bit_generator.state, sort_keys=True, default=lambda value: value.tolist()))
    if callable(getattr(thing, "state_dict", None)):
        return digest(thing.state_dict())
    return digest(thing)


class Trace:
    """One rank's. `rank`: its number."""

    def __init__(self, rank: int) -> None:
        folder = Path(os.environ.get("TRACE_OUT", "."))
        random.seed(rank)  # what a script draws without having seeded cannot be compared
        numpy.random.seed(rank)
        self._rank = rank
        self._final = folder / f"final-{rank}.json"
        self._fd = os.open(folder / f"lines-{rank}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def line(self, key: Any, **values: Any) -> None:
        """One line; `key` names it and is used once in a run, as "step 3" or "evaluation 2"."""
        text = json.dumps({"key": str(key), **{name: digest(value) for name, value in values.items()}})
        os.write(self._fd, text.encode() + b"\n")

    def final(self, **things: Any) -> None:
        """Call it once, at the end: all that was trained, by name, and the random streams of this process."""
        found = {name: state_of(thing) for name, thing in things.items()}
        found["random torch"] = digest(torch.get_rng_state())
        found["random python"] = _hash(repr(random.getstate()).encode())
        state: Any = numpy.random.get_state(legacy=False)
        found["random numpy"] = _hash(state["state"]["key"].tobytes() + repr(state["state"]["pos"]).encode())
        partial = self._final.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps(found, indent=0, sort_keys=True))
        partial.rename(self._final)
        print(f"trace: rank {self._rank} is done", file=sys.stderr, flush=True)
        if "UNDERSTUDY_RUN_DIR" not in os.environ and torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()  # else Gloo's threads abort a torchrun worker at its end, now and then
            sys.stdout.flush()
            os._exit(0)  # and so they do, more rarely, while the interpreter is taken down
