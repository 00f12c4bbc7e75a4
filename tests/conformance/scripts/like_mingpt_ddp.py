"""As in minGPT-ddp: configuration in dataclasses, a Trainer with train and test epochs, and clipping."""

# ranks: 3
# group: loops
# expect: bitwise

from __future__ import annotations

from dataclasses import dataclass

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, random_split

import understudy


@dataclass
class TrainerConfig:
    epochs: int = 2
    batch_size: int = 4
    clip: float = 1.0
    use_amp: bool = False


@dataclass
class OptimizerConfig:
    learning_rate: float = 5e-3
    weight_decay: float = 0.1


class Characters(Dataset):
    def __init__(self, text, block):
        letters = sorted(set(text))
        self.number = {letter: n for n, letter in enumerate(letters)}
        self.text, self.block = text, block

    def __len__(self):
        return len(self.text) - self.block

    def __getitem__(self, index):
        numbers = torch.tensor([self.number[letter] for letter in self.text[index : index + self.block + 1]])
        return numbers[:-1], numbers[1:]


class Trainer:
    def __init__(self, config, job, model, optimizer, train, test):
        self.config, self.job, self.optimizer = config, job, optimizer
        self.train_loader, self.test_loader = self.prepare(train), self.prepare(test)
        self.scaler = torch.amp.GradScaler("cpu", enabled=config.use_amp)
        self.model = DistributedDataParallel(model)
        job.register(model=self.model, optimizer=optimizer)
        self.train_batch = job.step(lambda source, targets: self.run_batch(source, targets, True))
        self.test_epoch = job.section(self.run_test)

    def prepare(self, data):
        return DataLoader(data, batch_size=self.config.batch_size, sampler=DistributedSampler(data), drop_last=True)

    def run_batch(self, source, targets, train):
        with torch.set_grad_enabled(train), torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.config.use_amp):
            loss = nn.functional.cross_entropy(self.model(source).flatten(0, 1), targets.flatten())
        if train:
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)
            self.optimizer.step()
        return loss.item()

    def run_test(self):
        self.model.eval()
        losses = [self.run_batch(source, targets, False) for source, targets in self.test_loader]
        self.model.train()
        return losses

    def fit(self, trace):
        for epoch in range(self.config.epochs):
            self.train_loader.sampler.set_epoch(epoch)
            for source, targets in self.job.batches(self.train_loader):
                loss = self.train_batch(source, targets)
                trace.line(f"step {self.job.committed}", loss=loss)
            trace.line(f"evaluation {epoch}", losses=self.test_epoch())


def main():
    job = understudy.join()
    torch.manual_seed(0)
    data = Characters("a spare takes the place of the rank that is lost, and the step is done again by all of them. " * 1, block=8)
    train, test = random_split(data, [len(data) - 12, 12])
    letters = len(data.number)
    model = nn.Sequential(nn.Embedding(letters, 16), nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, letters))
    settings = OptimizerConfig()
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay)
    trainer = Trainer(TrainerConfig(), job, model, optimizer, train, test)
    torch.manual_seed(1 + job.rank)
    trace = Trace(job.rank)
    trainer.fit(trace)
    trace.final(model=trainer.model, optimizer=optimizer)


if __name__ == "__main__":
    main()
