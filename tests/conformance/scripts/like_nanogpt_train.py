"""As in nanoGPT: the body of an endless loop is the step. It evaluates and saves on one rank, and prefetches into globals.

That is how the original is changed with ten lines: what stood below `while True:` stays where it is, below `@job.step`, `def` and `global`;
each `break` is a `return`; and a line behind it lets job.steps lead. Accumulation, a rate set by hand into the groups and tied weights are
as there.
"""

# ranks: 3
# group: loops
# expect: bitwise

from __future__ import annotations

import math
import os
import time
from pathlib import Path

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy

VOCABULARY, CONTEXT, PARTS = 24, 8, 2


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width), nn.Dropout(0.1))

    def forward(self, x):
        q, k, v = (part.unflatten(2, (2, -1)).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, dim=2))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.1 if self.training else 0.0)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(CONTEXT, width)
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)
        self.tokens.weight = self.head.weight

    def forward(self, x, y):
        logits = self.head(self.norm(self.blocks(self.tokens(x) + self.places.weight)))
        return logits, nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())


def get_batch(part):
    places = torch.randint(len(text[part]) - CONTEXT - 1, (4,))
    x = torch.stack([text[part][i : i + CONTEXT] for i in places])
    return x, torch.stack([text[part][i + 1 : i + 1 + CONTEXT] for i in places])


def rate_at(step, warm_up=3, decay=12, highest=1e-2, lowest=1e-3):
    if step < warm_up:
        return highest * (step + 1) / warm_up
    return lowest + 0.5 * (highest - lowest) * (1 + math.cos(math.pi * (step - warm_up) / (decay - warm_up)))


job = understudy.join()
torch.manual_seed(0)
text = {"train": torch.randint(VOCABULARY, (2000,)), "val": torch.randint(VOCABULARY, (500,))}
model = GPT()
decayed = [p for p in model.parameters() if p.dim() >= 2]
plain = [p for p in model.parameters() if p.dim() < 2]
optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}], betas=(0.9, 0.95))
scaler = torch.amp.GradScaler("cpu", enabled=False)
model = DistributedDataParallel(model)
job.register(model=model, optimizer=optimizer, scaler=scaler)
torch.manual_seed(1337 + job.rank)
trace = Trace(job.rank)
checkpoint = Path(os.environ.get("TRACE_OUT", "."), "checkpoint.pt")


@torch.no_grad()
def estimate_loss():
    model.eval()
    found = {part: torch.tensor([model(*get_batch(part))[1] for _ in range(3)]).mean() for part in text}
    model.train()
    return found


x, y = get_batch("train")
number, here = 0, 0
lowest = 1e9
last, pace = time.time(), -1.0


@job.step
def iteration():
    global x, y, number, here, lowest, last, pace
    for group in optimizer.param_groups:
        group["lr"] = rate_at(number)
    if number % 4 == 0 and job.rank == 0:
        found = estimate_loss()
        if found["val"] < lowest or number < 8:
            lowest = found["val"]
            state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "number": number, "lowest": lowest}
            torch.save(state, checkpoint)
    for part in range(PARTS):
        model.require_backward_grad_sync = part == PARTS - 1
        _, loss = model(x, y)
        x, y = get_batch("train")
        scaler.scale(loss / PARTS).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    now = time.time()
    if here >= 5:
        pace = now - last if pace < 0 else 0.9 * pace + 0.1 * (now - last)
    last = now
    trace.line(f"step {number}", loss=loss, lowest=lowest, x=x)
    number += 1
    here += 1
    if number > 12:
        return


for _ in job.steps(12):
    iteration()

if job.rank == 0:
    trace.line("checkpoint", **torch.load(checkpoint))
trace.final(model=model, optimizer=optimizer)
