"""The training that every system runs: a byte-level GPT on batches that are a pure function of the step and the rank.

No dropout, no loader, no schedule: nothing but parameters and the optimizer's moments changes, so these two and the number of the step are
the whole state. Imports are those that any such script needs and no more, because a process that is restarted pays for them.
"""

from __future__ import annotations

import argparse
import hashlib
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from peers.log import Writer
from peers.sizes import SIZES

BYTES = 256  # the vocabulary
CONTEXT = 64  # bytes per window


class GPT(nn.Module):
    """Bytes in [batch, length] -> logits of the next byte [batch, length, 256]."""

    def __init__(self, layers: int, width: int, heads: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(BYTES, width)
        self.position = nn.Embedding(CONTEXT, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT), persistent=False)
        for table in (self.embedding, self.position):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, text: Tensor) -> Tensor:
        x = self.embedding(text) + self.position.weight
        logits: Tensor = F.linear(self.norm(self.blocks(x, mask=self.mask, is_causal=True)), self.embedding.weight)
        return logits


@dataclass(frozen=True)
class Arguments:
    model: str
    steps: int
    seed: int
    batch: int  # windows per rank
    record: Path  # the log
    folder: Path  # for checkpoints
    every: int  # steps between checkpoints; 0: none
    checkpoints: str  # "whole" or "distributed"


def arguments() -> Arguments:
    """Parse the command line, which `peers.systems` writes."""
    parser = argparse.ArgumentParser(description="The training of the comparison, under one of its systems.")
    parser.add_argument("--model", choices=sorted(SIZES), default="10M")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=int, default=1, help="windows per rank and step")
    parser.add_argument("--record", type=Path, required=True, help="file that all ranks append to: the log")
    parser.add_argument("--folder", type=Path, default=Path(), help="for checkpoints")
    parser.add_argument("--every", type=int, default=0, help="steps between two checkpoints; 0: none")
    parser.add_argument("--checkpoints", choices=("whole", "distributed"), default="whole")
    return Arguments(**vars(parser.parse_args()))


class Training:
    """Model and optimizer, the same on every rank, and the parts of a step. `wrap` the model before the first step."""

    def __init__(self, args: Arguments) -> None:
        self.args = args
        torch.manual_seed(args.seed)
        size = SIZES[args.model]
        self.net = GPT(size.layers, size.width, size.heads)
        self.model: nn.Module = self.net
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=3e-4, fused=True)

    def batch(self, step: int, rank: int) -> Tensor:
        """Return [windows, CONTEXT + 1] bytes as int64, drawn from step and rank alone."""
        stream = torch.Generator().manual_seed((self.args.seed * 1_000_003 + step) * 1_000 + rank)
        return torch.randint(BYTES, (self.args.batch, CONTEXT + 1), generator=stream)

    def backward(self, step: int, rank: int) -> None:
        """Run the forward and backward pass; DDP averages the gradients in the latter."""
        windows = self.batch(step, rank)
        logits = self.model(windows[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())
        loss.backward()  # type: ignore[no-untyped-call]

    def step(self, log: Writer, rank: int, step: int) -> None:
        """Run a whole step, for systems that add nothing to it."""
        log.write("begin", rank, step)
        self.backward(step, rank)
        self.optimizer.step()
        self.optimizer.zero_grad()
        log.write("commit", rank, step)

    def digest(self) -> str:
        """Return the digest of all parameters, their bytes in the order of their names' registration."""
        whole = hashlib.sha256()
        for parameter in self.net.parameters():
            whole.update(parameter.detach().numpy().tobytes())
        return whole.hexdigest()

    def finish(self, log: Writer, rank: int) -> None:
        log.write("final", rank, self.args.steps, digest=self.digest())
