"""Accelerate with a seedable sampler and two data workers: one epoch is left early, and `save_state` follows each."""

# ranks: 3
# group: frameworks
# expect: bitwise

import tempfile

from _common import DataLoader, join_seeded, nn, start_trace, torch
from accelerate import Accelerator, DataLoaderConfiguration
from torch.utils.data import Dataset


class Noisy(Dataset):
    """Each sample has noise of the process that makes it."""

    def __len__(self):
        return 60

    def __getitem__(self, index):
        return torch.full((8,), index / 60) + 0.1 * torch.randn(8)


job = join_seeded()
configuration = DataLoaderConfiguration(use_seedable_sampler=True)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=3, dataloader_config=configuration)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
loader = DataLoader(Noisy(), batch_size=4, shuffle=True, num_workers=2)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
job.register(accelerator=accelerator)
folder = tempfile.mkdtemp()
trace = start_trace(job)


@job.step
def train_step(inputs):
    with accelerator.accumulate(model):
        loss = (model(inputs) - inputs.mean(1, keepdim=True)).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    return loss.item(), accelerator.sync_gradients


@job.section
def save():
    accelerator.save_state(folder)


for _ in range(4):
    for inputs in job.batches(loader):
        loss, synchronized = train_step(inputs)
        trace.line(f"step {job.committed}", loss=loss, synchronized=synchronized)
        if job.committed == 8:
            break
    save()

trace.final(model=model, optimizer=optimizer.optimizer)
