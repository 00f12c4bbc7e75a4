"""Collocation points of a small PINN come from torch.quasirandom.SobolEngine, scrambled with its own seed on each rank."""

# group: state out of sight
# expect: told US1423 "sampler.points.num_generated"

from _common import DDP, join_seeded, nn, start_trace, torch
from torch.quasirandom import SobolEngine


class Sampler:
    def __init__(self, rank):
        self.points = SobolEngine(2, scramble=True, seed=rank)

    def draw(self, count):
        return self.points.draw(count).mul(2).sub(1)


def main():
    job = join_seeded()
    model = DDP(nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    job.register(model=model, optimizer=optimizer)
    trace = start_trace(job)
    sampler = Sampler(job.rank)

    @job.step
    def train_step():
        points = sampler.draw(8)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(points), (3 * points).sin().prod(1, keepdim=True))
        loss.backward()
        optimizer.step()
        return loss.item()

    for step in job.steps(14):
        loss = train_step()
        trace.line(f"step {step}", loss=loss)

    trace.final(model=model, optimizer=optimizer)


if __name__ == "__main__":
    main()
