"""Train a small GPT on bytes of real text: an ordinary distributed PyTorch script that survives the loss of a rank.

    python examples/train_gpt.py --steps 20                                     one process
    torchrun --nproc-per-node 4 examples/train_gpt.py                           four ranks
    understudy run --nproc-per-node 4 --spares 1 examples/train_gpt.py          four ranks and a spare

The file is the same for all three. What Understudy asks of a script, and all that it asks:

1. `understudy.join()` in place of `torch.distributed.init_process_group()`.
2. `job.register(...)` for everything that changes while training: model, optimizer, schedule, your own counters.
3. `@job.step` on the function that trains on one batch. It is a transaction: when a rank is lost inside it, the ranks
   that are left and the spare that takes over redo it, and it returns once, when all ranks have committed it.
   Its collectives come before `optimizer.step()`; what is logged is therefore computed before, too.
4. `@job.section` on other code with collectives, such as an evaluation.
5. `for batch in job.batches(loader, steps=N)`: the loop begins where the job is, on whichever worker runs it.

A spare that takes over a rank runs this file from its beginning, so whatever happens before the loop is a part of the
time that a recovery takes: imports stand at the top (a warm spare has done them), the text is mapped and not read.

The three ways to be parallel: `ddp` keeps a whole copy of the model on every rank; `hsdp` shards parameters, gradients
and optimizer over half of the ranks and keeps two replicas of that (`fully_shard` on a 2-D mesh); `tp` splits every
layer's matrices over half of the ranks (DTensor), again twice. In each of them another rank holds the same state as
the one that is lost: that is where its state comes from.

The defaults suit a machine without a GPU: 10.7 M parameters, and a step of some 0.3 s with four ranks on two cores.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import math
import os
import random
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

import devices
import final_state
import understudy

BYTES = 256  # the vocabulary
CORPUS_LIMIT = 8 << 20  # bytes of text to take from a folder
HELD_OUT = 64  # windows at the end of the text, for the evaluation
CLIP = 1.0  # largest norm of the gradient


# --- The text ---------------------------------------------------------------------------------------------------------


def text_file(corpus: str) -> Path:
    """Return the text as one file: `corpus` itself, or the joined text files of a folder, kept in the temporary folder.

    Several ranks may run this at once. Each writes its own file and renames it: a rename replaces as a whole.
    """
    source = Path(corpus or sysconfig.get_path("stdlib"))
    if source.is_file():
        return source
    files: list[Path] = []
    size, key = 0, hashlib.sha256()
    for folder, subfolders, names in os.walk(source):
        subfolders[:] = sorted(name for name in subfolders if name not in ("site-packages", "__pycache__"))
        for name in sorted(names):
            if size < CORPUS_LIMIT and name.endswith((".py",) if not corpus else (".py", ".txt", ".md", ".rst")):
                files.append(Path(folder, name))
                status = files[-1].stat()
                size += status.st_size
                key.update(f"{files[-1]} {status.st_size} {status.st_mtime_ns}\n".encode())
        if size >= CORPUS_LIMIT:
            break
    if not files:
        raise SystemExit(f"no text below {source}: name a file or a folder of .py, .txt, .md or .rst files with --corpus")
    joined = Path(tempfile.gettempdir(), f"understudy-corpus-{os.getuid()}-{key.hexdigest()[:16]}")
    if not joined.exists():
        with tempfile.NamedTemporaryFile(dir=joined.parent, prefix=joined.name, delete=False) as own:
            own.write(b"".join(file.read_bytes() for file in files)[:CORPUS_LIMIT])
        Path(own.name).replace(joined)
    return joined


class Windows(Dataset[Tensor]):
    """The text in windows of `context` + 1 bytes, as int64: the input and, shifted by one, the target."""

    def __init__(self, path: Path, context: int) -> None:
        self.text = torch.from_file(str(path), shared=False, size=path.stat().st_size, dtype=torch.uint8)  # mapped
        self.context = context
        self.count = (len(self.text) - 1) // context - HELD_OUT
        if self.count < 1:
            raise SystemExit(f"{path} is too short: {len(self.text)} bytes for windows of {context}")

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Tensor:
        return self.text[index * self.context : (index + 1) * self.context + 1].long()

    def held_out(self, first: int, stride: int) -> Tensor:
        """Return every `stride`-th window of those that no epoch trains on: [windows, context + 1]."""
        return torch.stack([self[self.count + index] for index in range(first, HELD_OUT, stride)])


# --- The model --------------------------------------------------------------------------------------------------------


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.head_width = width // heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        # Rows are ordered by head and then by query, key, value, so that a tensor-parallel shard is a set of heads.
        qkv = self.qkv(x).view(batch, length, -1, 3, self.head_width)
        query, key, value = qkv.transpose(1, 2).unbind(dim=3)  # each [batch, heads (of this shard), length, head_width]
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        projected: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, length, -1))
        return projected


class Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.norm1(x)))
        x = x + self.dropout(self.down(F.gelu(self.up(self.norm2(x)))))
        return x


class GPT(nn.Module):
    """A model from bytes in [batch, length] to logits of the next byte [batch, length, 256]. The last matrix is the embedding."""

    def __init__(self, layers: int, width: int, heads: int, context: int, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(BYTES, width)
        self.position = nn.Embedding(context, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        for table in (self.embedding, self.position):
            nn.init.normal_(table.weight, std=0.02)  # small, because the embedding also makes the logits

    def forward(self, text: Tensor) -> Tensor:
        x = self.dropout(self.embedding(text) + self.position.weight[: text.shape[1]])
        for block in self.blocks:
            x = block(x)
        logits: Tensor = F.linear(self.norm(x), self.embedding.weight)
        return logits


def next_byte_loss(model: nn.Module, windows: Tensor) -> Tensor:
    logits = model(windows[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())


# --- Three ways to be parallel ----------------------------------------------------------------------------------------


class Parallel:
    """The model spread over the ranks, and the differences between the ways: which rank sees which data, how gradients are averaged."""

    def __init__(self, way: str, model: nn.Module, job: understudy.Job, device: torch.device) -> None:
        self.model = model
        self.data_rank, self.data_ranks = job.rank, job.world_size
        self.replicas: dist.ProcessGroup | None = None  # ranks that average gradients by hand
        halves = 2 if job.world_size % 2 == 0 else 1
        shape = (halves, job.world_size // halves)
        if way == "ddp":
            self.model = DistributedDataParallel(model)
        elif way == "hsdp":
            mesh = init_device_mesh(device.type, shape, mesh_dim_names=("replicate", "shard"))
            for block in model.blocks:  # type: ignore[union-attr]
                fully_shard(block, mesh=mesh)
            fully_shard(model, mesh=mesh)
        else:
            mesh = init_device_mesh(device.type, shape, mesh_dim_names=("data", "tensor"))
            plan = {"attention.qkv": ColwiseParallel(), "attention.out": RowwiseParallel()}
            plan |= {"up": ColwiseParallel(), "down": RowwiseParallel()}
            for block in model.blocks:  # type: ignore[union-attr]
                parallelize_module(block, mesh["tensor"], plan)
            self.data_rank, self.data_ranks = mesh.get_local_rank("data"), shape[0]
            self.replicas = mesh.get_group("data")

    def last_backward(self, last: bool) -> contextlib.AbstractContextManager[None]:
        """Wrap a backward pass: only in the last one of an accumulated step are gradients averaged."""
        if isinstance(self.model, DistributedDataParallel) and not last:
            return self.model.no_sync()
        if isinstance(self.model, FSDPModule):
            self.model.set_requires_gradient_sync(last)
        return contextlib.nullcontext()

    def average_gradients(self) -> None:
        """Average gradients over the replicas of a tensor-parallel model; DDP and FSDP have done it in the backward pass."""
        if self.replicas is not None and self.replicas.size() > 1:
            gradients = [local(p.grad) for p in self.model.parameters() if p.grad is not None]
            flat = torch.cat([gradient.flatten() for gradient in gradients])
            dist.all_reduce(flat, group=self.replicas)
            flat /= self.replicas.size()
            for gradient, mean in zip(gradients, torch.split(flat, [g.numel() for g in gradients]), strict=True):
                gradient.copy_(mean.view_as(gradient))

    def clip_gradients(self) -> None:
        """Clip gradients to a norm of `CLIP` over the whole model: a sharded tensor knows its whole norm, the others are whole."""
        kinds: dict[bool, list[nn.Parameter]] = {True: [], False: []}
        for parameter in self.model.parameters():
            kinds[isinstance(parameter, DTensor)].append(parameter)
        norms = [nn.utils.get_total_norm([p.grad for p in kind if p.grad is not None]) for kind in kinds.values() if kind]
        total = torch.stack([norm.full_tensor() if isinstance(norm, DTensor) else norm for norm in norms]).norm()
        for kind in kinds.values():
            nn.utils.clip_grads_with_norm_(kind, CLIP, total)


def local(tensor: Tensor) -> Tensor:
    """Return this rank's part of a sharded tensor, or the tensor itself."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


# --- Training ---------------------------------------------------------------------------------------------------------


class LossRecord:
    """Every loss that this rank has seen, folded into 32 bytes: two runs agree in all of them or in none that follows.

    A custom object: `job.register` needs only its `state_dict` and `load_state_dict`.
    """

    def __init__(self) -> None:
        self.digest = ""

    def add(self, loss: float) -> None:
        self.digest = hashlib.sha256(f"{self.digest} {loss.hex()}".encode()).hexdigest()

    def state_dict(self) -> dict[str, Any]:
        return {"digest": self.digest}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.digest = state["digest"]


def train(args: argparse.Namespace) -> None:
    device = devices.choose(args.device)
    job = understudy.join(backend=args.backend or ("nccl" if device.type == "cuda" else "gloo"))

    random.seed(args.seed)  # nothing here draws from Python's generator, but two runs should agree in it too
    torch.manual_seed(args.seed)  # the same first parameters on every rank
    net = GPT(args.layers, args.width, args.heads, args.context, args.dropout).to(device)
    size = sum(parameter.numel() for parameter in net.parameters())
    parallel = Parallel(args.parallel, net, job, device)
    model = parallel.model
    torch.manual_seed(args.seed + 1 + parallel.data_rank)  # other dropout on other data

    matrices = [p for block in net.blocks for p in block.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if not any(p is matrix for matrix in matrices)]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.95), fused=True)
    warmup = min(20, args.steps // 5 + 1)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: min((step + 1) / warmup, 0.55 + 0.45 * math.cos(math.pi * min(1.0, step / args.steps))),
    )

    windows = Windows(text_file(args.corpus), args.context)
    loader = DataLoader(
        windows,
        batch_size=args.batch_size * args.accumulate,
        sampler=DistributedSampler(windows, parallel.data_ranks, parallel.data_rank, seed=args.seed, drop_last=True),
        drop_last=True,
        num_workers=args.workers,
        generator=torch.Generator().manual_seed(args.seed),  # so that starting an epoch draws nothing from dropout's
    )
    if len(loader) == 0:
        raise SystemExit(f"{len(windows)} windows of text are too few for one batch on each rank: lower --batch-size")
    record = LossRecord()
    job.register(model=model, optimizer=optimizer, schedule=schedule, loader=loader, record=record)

    @job.step
    def train_step(batch: Tensor) -> float:
        total = torch.zeros((), device=device)
        parts = batch.to(device).chunk(args.accumulate)
        for index, part in enumerate(parts):
            with parallel.last_backward(index == len(parts) - 1):
                loss = next_byte_loss(model, part) / len(parts)
                loss.backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        record.add(total.item())
        dist.all_reduce(total)  # collectives come before optimizer.step: the mean for the log, too
        parallel.average_gradients()
        parallel.clip_gradients()
        optimizer.step()
        optimizer.zero_grad()  # here, so that there is nothing to keep from one step to the next
        schedule.step()
        return float(total) / job.world_size

    @job.section
    def evaluate() -> float:
        model.eval()
        with torch.no_grad():
            loss = next_byte_loss(model, windows.held_out(parallel.data_rank, parallel.data_ranks).to(device))
        model.train()
        dist.all_reduce(loss)
        return float(loss) / job.world_size

    if job.rank == 0:
        print(f"{size / 1e6:.1f} M parameters, {args.parallel}, {job.world_size} ranks, {device.type}", flush=True)
    log = Log(args, job.rank, tokens=args.batch_size * args.accumulate * args.context * parallel.data_ranks)
    job.ignore("log.since")  # only the log on rank 0 uses it; training does not
    for batch in job.batches(loader, steps=args.steps):
        loss = train_step(batch)
        log.step(job.committed, loss)
        if args.eval_every and job.committed % args.eval_every == 0:
            log.evaluation(job.committed, evaluate())

    if args.final:
        final_state.save(Path(args.final), job.rank, model, optimizer, {"schedule": schedule, "record": record})


# --- Output ------------------------------------------------------------------------------------------------------------


class Log:
    """Rank 0's progress line, and JSON lines {step, loss, time} in `--metrics FILE`.

    With `{rank}` in FILE's name every rank writes its own. A rank that is lost between its commit and its line leaves
    that line out or, once replaced, writes it again.
    """

    def __init__(self, args: argparse.Namespace, rank: int, tokens: int) -> None:
        self.steps, self.every, self.tokens, self.rank = args.steps, args.log_every, tokens, rank
        writes = args.metrics and (rank == 0 or "{rank}" in args.metrics)
        self.metrics = open(args.metrics.replace("{rank}", str(rank)), "a", buffering=1) if writes else None  # noqa: SIM115
        self.since: tuple[float, int] | None = None  # time and step of the last line

    def step(self, step: int, loss: float) -> None:
        now = time.time()
        if self.metrics:
            self.metrics.write(json.dumps({"step": step, "loss": loss, "time": now}) + "\n")
        if self.rank == 0 and (step % self.every == 0 or step == self.steps or self.since is None):
            speed = f"{self.tokens * (step - self.since[1]) / (now - self.since[0]):,.0f} tokens/s" if self.since else ""
            print(f"step {step}/{self.steps}  loss {loss:.4f}  {speed}", flush=True)
            self.since = (now, step)

    def evaluation(self, step: int, loss: float) -> None:
        if self.rank == 0:
            print(f"step {step}/{self.steps}  held-out loss {loss:.4f}", flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a byte-level GPT on real text.")
    parser.add_argument("--parallel", choices=("ddp", "hsdp", "tp"), default="ddp")
    parser.add_argument("--corpus", default="", help="a text file or a folder; default: Python's standard library")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=1, help="windows per rank and backward pass")
    parser.add_argument("--accumulate", type=int, default=1, help="backward passes per step")
    parser.add_argument("--lr", type=float, default=6e-4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--heads", type=int, default=6)
    parser.add_argument("--context", type=int, default=64, help="bytes per window")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--workers", type=int, default=0, help="processes that load data, per rank")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--backend", default="", help="gloo or nccl; default: what fits the device")
    parser.add_argument("--eval-every", type=int, default=0, help="steps between evaluations; 0: none")
    parser.add_argument("--log-every", type=int, default=10, help="steps between progress lines")
    parser.add_argument("--metrics", default="", help="file for JSON lines; {rank} in its name: one for each rank")
    parser.add_argument("--final", default="", help="folder for the state of every rank at the end, to compare runs")
    return parser.parse_args()


if __name__ == "__main__":
    train(arguments())
