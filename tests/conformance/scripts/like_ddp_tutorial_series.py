"""As in the DDP tutorial series: a Trainer class, epochs, and a snapshot that rank 0 saves."""

# ranks: 3
# group: loops
# expect: bitwise

from __future__ import annotations

import os
from pathlib import Path

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

import understudy


class Random(Dataset):
    def __init__(self, size):
        self.data = [(torch.rand(20), torch.rand(1)) for _ in range(size)]

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        return self.data[index]


class Trainer:
    def __init__(self, job, model, loader, optimizer, save_every, snapshot):
        self.job, self.loader, self.optimizer, self.save_every, self.snapshot = job, loader, optimizer, save_every, snapshot
        self.first_epoch = 0
        if snapshot.exists():
            saved = torch.load(snapshot)
            model.load_state_dict(saved["model"])
            self.first_epoch = saved["epochs"]
        self.model = DistributedDataParallel(model)
        job.register(model=self.model, optimizer=optimizer)
        self.run_batch = job.step(self._run_batch)
        self.save = job.section(self._save)

    def _run_batch(self, source, targets):
        self.optimizer.zero_grad()
        loss = nn.functional.mse_loss(self.model(source), targets)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def _save(self, epoch):
        if self.job.rank == 0:
            partial = self.snapshot.with_suffix(".new")
            torch.save({"model": self.model.module.state_dict(), "epochs": epoch + 1}, partial)
            partial.rename(self.snapshot)

    def run_epoch(self, epoch, trace):
        self.loader.sampler.set_epoch(epoch)
        for source, targets in self.job.batches(self.loader):
            loss = self.run_batch(source, targets)
            trace.line(f"step {self.job.committed}", loss=loss)

    def train(self, epochs, trace):
        for epoch in range(self.first_epoch, epochs):
            self.run_epoch(epoch, trace)
            if epoch % self.save_every == 0:
                self.save(epoch)


def main():
    job = understudy.join()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    data = Random(48)
    loader = DataLoader(data, batch_size=4, shuffle=False, sampler=DistributedSampler(data))
    # Its own file for each run of a rank: a snapshot of the live job would be another matter (issue 17).
    folder = Path(os.environ.get("TRACE_OUT", "."), "..").resolve()
    trainer = Trainer(job, model, loader, optimizer, save_every=2, snapshot=folder / f".snapshot-{os.getpid()}-{job.rank}.pt")
    torch.manual_seed(1 + job.rank)
    trace = Trace(job.rank)
    trainer.train(3, trace)
    trace.final(model=trainer.model, optimizer=optimizer)
    trainer.snapshot.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
