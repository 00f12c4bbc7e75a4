"""A decoder is fed its own output more and more often: the count of calls is a list of one element in a closure."""

# group: unregistered state
# expect: bitwise

import math
import random

from _common import DDP, join_seeded, nn, start_trace, torch

VOCABULARY, WIDTH, LENGTH = 12, 16, 6


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.cell = nn.GRUCell(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, context, targets, forced):
        hidden, token, logits = context, torch.zeros_like(targets[:, 0]), []
        for place in range(targets.shape[1]):
            hidden = self.cell(self.embedding(token), hidden)
            logits.append(self.out(hidden))
            token = targets[:, place] if forced[place] else logits[-1].argmax(1)
        return torch.stack(logits, 1)


def make_step(job, model, optimizer):
    calls = [0]

    @job.step
    def train_step(context, targets):
        probability = 3 / (3 + math.exp(calls[0] / 3))
        calls[0] += 1
        forced = [random.random() < probability for _ in range(LENGTH)]
        optimizer.zero_grad()
        logits = model(context, targets, forced)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        return loss.item(), sum(forced)

    return train_step


job = join_seeded()
model = DDP(Decoder())
optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
train_step = make_step(job, model, optimizer)

for step in job.steps(12):
    loss, forced = train_step(torch.randn(4, WIDTH), torch.randint(VOCABULARY, (4, LENGTH)))
    trace.line(f"step {step}", loss=loss, forced=forced)

trace.final(model=model, optimizer=optimizer)
