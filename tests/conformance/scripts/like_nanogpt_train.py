"""In the manner of nanoGPT's training loop: accumulation, a rate set by hand into the groups, estimate_loss, weight tying."""

# ranks: 3
# group: loops
# expect: bitwise

from __future__ import annotations

import math

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
model = GPT()
decayed = [p for p in model.parameters() if p.dim() >= 2]
plain = [p for p in model.parameters() if p.dim() < 2]
optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}], betas=(0.9, 0.95))
text = {"train": torch.randint(VOCABULARY, (2000,)), "val": torch.randint(VOCABULARY, (500,))}
model = DistributedDataParallel(model)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1337 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(step):
    for group in optimizer.param_groups:
        group["lr"] = rate_at(step)
    total = 0.0
    for part in range(PARTS):
        model.require_backward_grad_sync = part == PARTS - 1
        _, loss = model(*get_batch("train"))
        (loss / PARTS).backward()
        total += loss.item() / PARTS
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return total


@job.section
@torch.no_grad()
def estimate_loss():
    model.eval()
    found = {part: torch.tensor([model.module(*get_batch(part))[1] for _ in range(3)]).mean().item() for part in text}
    model.train()
    return found


for step in job.steps(12):
    if step % 4 == 0:
        trace.line(f"evaluation {step}", **estimate_loss())
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
