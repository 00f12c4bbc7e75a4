"""A layer whose python state (a temperature and a history) is in its state_dict by get_extra_state."""

# ranks: 3
# group: state
# expect: bitwise

from __future__ import annotations

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import understudy


class Tempered(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.history = {"temperature": 2.0, "used": []}

    def forward(self, x):
        temperature = self.history["temperature"]
        if self.training:
            self.history["used"].append(temperature)
            self.history["temperature"] = max(0.5, temperature * 0.9)
        return self.linear(x) / temperature

    def get_extra_state(self):
        return {"temperature": self.history["temperature"], "used": list(self.history["used"])}

    def set_extra_state(self, state):
        self.history = {"temperature": state["temperature"], "used": list(state["used"])}


job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Dropout(0.1), Tempered(24, 4)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = TensorDataset(torch.randn(96, 8), torch.randint(4, (96,)))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(batch):
    inputs, labels = batch
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs), labels)
    loss.backward()
    optimizer.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss, extra=model.module[3].get_extra_state())

trace.final(model=model, optimizer=optimizer, extra=model.module[3].get_extra_state())
