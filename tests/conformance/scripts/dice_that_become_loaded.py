"""A subclass of random.Random has an attribute of its own: how often its dice gave a six, which makes the next six rarer."""

# group: state out of sight
# expect: told US1423 "dice"

import random

from _common import DDP, join_seeded, mlp, nn, start_trace, torch


class Dice(random.Random):
    def __init__(self, seed):
        super().__init__(seed)
        self.sixes = 0

    def roll(self):
        if self.random() < 0.5 / (1 + self.sixes):
            self.sixes += 1
            return 6
        return self.randint(1, 5)


def main():
    job = join_seeded()
    model = DDP(mlp(8, 24, 1, nn.ReLU))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    job.register(model=model, optimizer=optimizer)
    trace = start_trace(job)
    dice = Dice(11 + job.rank)

    @job.step
    def train_step(inputs):
        roll = dice.roll()
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs.roll(roll, 1)), inputs.sum(1, keepdim=True)) * (1 + roll / 6)
        loss.backward()
        optimizer.step()
        return loss.item(), roll

    for step in job.steps(14):
        loss, roll = train_step(torch.randn(4, 8))
        trace.line(f"step {step}", loss=loss, roll=roll)

    trace.final(model=model, optimizer=optimizer)


if __name__ == "__main__":
    main()
