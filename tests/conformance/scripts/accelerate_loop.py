"""A loop of Hugging Face Accelerate: accumulation, clipping, a schedule, gathered metrics, noise in the collate function."""

# ranks: 3
# group: frameworks
# expect: bitwise

from _common import DataLoader, TensorDataset, join_seeded, nn, start_trace, torch
from accelerate import Accelerator

job = join_seeded()
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
data = TensorDataset(torch.randn(60, 8), torch.randint(0, 3, (60,)))


def noisy(items):
    inputs, labels = (torch.stack(part) for part in zip(*items, strict=True))
    return inputs + 0.1 * torch.randn_like(inputs), labels


train, held_out = DataLoader(data, batch_size=4, shuffle=True, collate_fn=noisy), DataLoader(data, batch_size=8)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=20)
model, optimizer, train, held_out, schedule = accelerator.prepare(model, optimizer, train, held_out, schedule)
job.register(accelerator=accelerator)
trace = start_trace(job)


@job.step
def train_step(batch):
    with accelerator.accumulate(model):
        loss = nn.functional.cross_entropy(model(batch[0]), batch[1])
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    return loss.item()


@job.section
def evaluate():
    model.eval()
    right = seen = 0
    for inputs, labels in held_out:
        with torch.no_grad():
            guess = model(inputs).argmax(1)
        guess, labels = accelerator.gather_for_metrics((guess, labels))
        right, seen = right + (guess == labels).sum().item(), seen + len(labels)
    model.train()
    return right / seen


for epoch in range(3):
    for batch in job.batches(train):
        loss = train_step(batch)
        trace.line(f"step {job.committed}", loss=loss, rate=schedule.get_last_lr()[0])
    trace.line(f"epoch {epoch}", score=evaluate())

trace.final(model=model, optimizer=optimizer.optimizer)
