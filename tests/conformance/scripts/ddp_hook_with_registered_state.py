"""A comm hook with error feedback of its own, whose state is registered: an object with state_dict and load_state_dict."""

# ranks: 3
# group: ddp
# expect: bitwise

from __future__ import annotations

import torch
from _trace import Trace
from torch import nn
from torch.distributed import all_reduce, get_world_size
from torch.nn.parallel import DistributedDataParallel

import understudy


class Errors:
    """What rounding has taken away from each bucket so far."""

    def __init__(self):
        self.kept = {}

    def state_dict(self):
        return {"kept": dict(self.kept)}

    def load_state_dict(self, state):
        self.kept = dict(state["kept"])


def rounded(errors, bucket):
    whole = bucket.buffer() / get_world_size() + errors.kept.get(bucket.index(), 0.0)
    short = whole.to(torch.bfloat16).to(torch.float32)
    errors.kept[bucket.index()] = whole - short
    future = all_reduce(short, async_op=True).get_future()
    return future.then(lambda done: done.value()[0])


job = understudy.join()
torch.manual_seed(0)
net = nn.Sequential(*[part for _ in range(5) for part in (nn.Linear(24, 24), nn.Tanh())], nn.Linear(24, 1))
model = DistributedDataParallel(net)
errors = Errors()
model.register_comm_hook(errors, rounded)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.register(model=model, optimizer=optimizer, errors=errors)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step():
    optimizer.zero_grad()
    inputs = torch.randn(5, 24)
    loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(10):
    trace.line(f"step {step}", loss=train_step())

trace.final(model=model, optimizer=optimizer, errors=errors)
