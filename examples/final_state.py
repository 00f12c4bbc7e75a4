"""Save the whole state of every rank at the end of a run to files, and compare two runs bit by bit.

`rank0.pt` holds rank 0's own part of every parameter, buffer and optimizer value, its random number generators and the
`state_dict` of its other objects; `rank0.json` holds the SHA-256 of each. Equal means equal bytes, types and shapes:
a difference in the last bit of one value is a difference.
"""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn


def save(folder: Path, rank: int, model: nn.Module, optimizer: torch.optim.Optimizer, values: dict[str, Any]) -> None:
    """Write this rank's files into `folder`. `values` are further objects with a `state_dict`, by name."""
    parameters = dict(model.named_parameters())
    tensors = {f"parameter {name}": parameter.detach() for name, parameter in parameters.items()}
    tensors |= {f"buffer {name}": buffer for name, buffer in model.named_buffers()}
    for name, parameter in parameters.items():
        for key, value in optimizer.state[parameter].items():
            tensors[f"optimizer {name} {key}"] = torch.as_tensor(value)
    tensors["rng torch"] = torch.get_rng_state()
    if torch.cuda.is_available():
        tensors["rng cuda"] = torch.cuda.get_rng_state()
    tensors = {name: _own_part(tensor).cpu().contiguous() for name, tensor in tensors.items()}
    texts = {name: repr(thing.state_dict()) for name, thing in values.items()}
    texts["rng python"] = repr(random.getstate())
    digests = {name: hashlib.sha256(_bytes(tensor)).hexdigest() for name, tensor in tensors.items()}
    digests |= {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
    folder.mkdir(parents=True, exist_ok=True)
    torch.save({"tensors": tensors, "texts": texts}, folder / f"rank{rank}.pt")
    (folder / f"rank{rank}.json").write_text(json.dumps(digests, indent=1) + "\n")


@dataclass(frozen=True)
class Comparison:
    tensors: int
    bytes: int
    differences: tuple[str, ...]


def compare(folder: Path, reference: Path, ranks: int) -> Comparison:
    """Compare every rank's state in `folder` with that in `reference`, bit by bit. A missing file is a difference."""
    count, size = 0, 0
    differences: list[str] = []
    for rank in range(ranks):
        paths = (folder / f"rank{rank}.pt", reference / f"rank{rank}.pt")
        missing = [str(path) for path in paths if not path.exists()]
        if missing:
            differences += [f"rank {rank}: {path} is missing" for path in missing]
            continue
        one, other = (torch.load(path, mmap=True, weights_only=True) for path in paths)
        for name in sorted(one["tensors"].keys() | other["tensors"].keys()):
            a, b = one["tensors"].get(name), other["tensors"].get(name)
            if a is None or b is None or a.dtype != b.dtype or a.shape != b.shape or _bytes(a) != _bytes(b):
                differences.append(f"rank {rank}: {name}")
            else:
                count, size = count + 1, size + a.nbytes
        texts = one["texts"].keys() | other["texts"].keys()
        differences += [f"rank {rank}: {name}" for name in sorted(texts) if one["texts"].get(name) != other["texts"].get(name)]
    return Comparison(count, size, tuple(differences))


def _own_part(tensor: Tensor) -> Tensor:
    """Return this rank's part of a sharded tensor, or the tensor itself."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _bytes(tensor: Tensor) -> memoryview:
    return memoryview(tensor.reshape(-1).view(torch.uint8).numpy().data)
