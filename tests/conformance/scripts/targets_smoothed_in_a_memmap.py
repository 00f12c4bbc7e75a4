"""The model's forward writes smoothed outputs to a memmap, one row for each sample, and the loss pulls towards what is there."""

# group: state out of sight
# expect: told US1423 "model.module.rows"

import tempfile
from pathlib import Path

import numpy as np
from _common import DDP, join_seeded, nn, sharded_loader, start_trace, torch
from torch.utils.data import Dataset


class Numbered(Dataset):
    def __init__(self, count):
        self.inputs, self.labels = torch.randn(count, 8), torch.randint(4, (count,))

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return index, self.inputs[index], self.labels[index]


class Smoothing(nn.Module):
    def __init__(self, count, folder):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 4))
        self.rows = np.memmap(Path(folder) / "rows.bin", dtype=np.float32, mode="w+", shape=(count, 4))

    def forward(self, index, inputs):
        logits = self.net(inputs)
        index = index.numpy()
        before = torch.from_numpy(np.array(self.rows[index]))
        self.rows[index] = 0.7 * self.rows[index] + 0.3 * logits.detach().softmax(1).numpy()
        return logits, before


def main():
    job = join_seeded()
    model = DDP(Smoothing(36, tempfile.mkdtemp(prefix="smoothing-")))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loader = sharded_loader(Numbered(36), 4)
    job.register(model=model, optimizer=optimizer)
    trace = start_trace(job)

    @job.step
    def train_step(index, inputs, labels):
        optimizer.zero_grad()
        logits, before = model(index, inputs)
        loss = nn.functional.cross_entropy(logits, labels) + 3 * nn.functional.mse_loss(logits.softmax(1), before)
        loss.backward()
        optimizer.step()
        return loss.item()

    for batch in job.batches(loader, steps=14):
        loss = train_step(*batch)
        trace.line(f"step {job.committed}", loss=loss)

    trace.final(model=model, optimizer=optimizer, rows=np.array(model.module.rows))


if __name__ == "__main__":
    main()
