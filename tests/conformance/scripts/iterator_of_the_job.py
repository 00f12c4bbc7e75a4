"""next() of job.iterator after each step, kept in a local name; the loop is left by break."""

# group: loops
# expect: bitwise

from _common import DDP, join_seeded, nn, start_trace, torch
from torch.utils.data import DataLoader, DistributedSampler


def main():
    job = join_seeded()
    model = DDP(nn.Sequential(nn.Embedding(20, 16), nn.Linear(16, 24), nn.GELU(), nn.Linear(24, 20)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    text = torch.randint(20, (500,))
    job.register(model=model, optimizer=optimizer)
    trace = start_trace(job)

    @job.step
    def train_step(tokens):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        return loss.item()

    windows = text.unfold(0, 7, 1)
    batches = job.iterator(DataLoader(windows, batch_size=4, sampler=DistributedSampler(windows, seed=3)))
    upcoming = next(batches)
    for step in job.steps():
        loss = train_step(upcoming)
        upcoming = next(batches)
        trace.line(f"step {step}", loss=loss)
        if step == 11:
            break

    trace.final(model=model, optimizer=optimizer)


if __name__ == "__main__":
    main()
