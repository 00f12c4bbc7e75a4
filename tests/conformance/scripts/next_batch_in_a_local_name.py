"""main() fetches the next batch after each step and keeps it in a local name until the next iteration."""

# group: unregistered state
# expect: bitwise

from _common import DDP, join_seeded, nn, start_trace, torch


def get_batch(text, size=4, length=6):
    places = torch.randint(len(text) - length - 1, (size,)).tolist()
    return torch.stack([text[i : i + length + 1] for i in places])


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

    upcoming = get_batch(text)
    for step in job.steps(12):
        loss = train_step(upcoming)
        upcoming = get_batch(text)
        trace.line(f"step {step}", loss=loss)

    trace.final(model=model, optimizer=optimizer)


if __name__ == "__main__":
    main()
