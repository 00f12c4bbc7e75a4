"""A factory returns a dict of two functions that share a nonlocal counter: one counts, the other returns the strength of the noise."""

# group: state out of sight
# expect: told US1423 "annealing['advance'].count"

import math

from _common import DDP, join_seeded, mlp, nn, start_trace, torch


def make_annealing(period):
    count = 0
    phase = 0.0

    def advance():
        nonlocal count, phase
        count += 1
        phase = math.pi * count / period

    def strength():
        return 0.25 * (1 + math.cos(phase))

    return {"advance": advance, "strength": strength}


def main():
    job = join_seeded()
    model = DDP(mlp(8, 24, 1, nn.GELU))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    job.register(model=model, optimizer=optimizer)
    trace = start_trace(job)
    annealing = make_annealing(period=9)

    @job.step
    def train_step(inputs):
        noisy = inputs + annealing["strength"]() * torch.randn_like(inputs)
        annealing["advance"]()
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(noisy), inputs.sum(1, keepdim=True))
        loss.backward()
        optimizer.step()
        return loss.item()

    for step in job.steps(14):
        loss = train_step(torch.randn(4, 8))
        trace.line(f"step {step}", loss=loss, strength=annealing["strength"]())

    trace.final(model=model, optimizer=optimizer)


if __name__ == "__main__":
    main()
