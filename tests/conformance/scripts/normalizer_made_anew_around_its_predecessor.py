"""After each step the function that normalizes the inputs is replaced by a new closure over the running mean and deviation."""

# group: state out of sight
# expect: told US1423 "normalize.deviation"

from _common import DDP, dist, join_seeded, nn, start_trace, torch


def make_normalizer(mean, deviation):
    def normalize(inputs):
        return (inputs - mean) / deviation

    def follow(inputs, pace=0.3):
        return make_normalizer(mean + pace * (inputs.mean().item() - mean), deviation + pace * (inputs.std().item() - deviation))

    normalize.follow = follow
    return normalize


def main():
    job = join_seeded()
    model = DDP(nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    job.register(model=model, optimizer=optimizer)
    trace = start_trace(job)
    normalize = make_normalizer(0.0, 1.0)

    @job.step
    def train_step(inputs):
        nonlocal normalize
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(normalize(inputs)), inputs.amax(1, keepdim=True))
        loss.backward()
        everyone = inputs.clone()
        dist.all_reduce(everyone)
        optimizer.step()
        normalize = normalize.follow(everyone)
        return loss.item()

    for step in job.steps(12):
        loss = train_step(3 + 2 * torch.randn(4, 8))
        trace.line(f"step {step}", loss=loss)

    trace.final(model=model, optimizer=optimizer)


if __name__ == "__main__":
    main()
