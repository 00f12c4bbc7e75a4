"""A closure carries a recurrent state from step to step, and it is detached from its graph at the beginning of the next step, as language
models do it: between two steps it still has its history.
"""

# group: unregistered state
# expect: bitwise

from _common import DDP, join_seeded, nn, start_trace, torch


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.LSTM(8, 16), nn.Linear(16, 1)

    def forward(self, inputs, hidden):
        outputs, hidden = self.cell(inputs, hidden)
        return self.head(outputs), hidden


def main():
    job = join_seeded()
    model = DDP(Recurrent())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    job.register(model=model, optimizer=optimizer)
    trace = start_trace(job)
    hidden = (torch.zeros(1, 4, 16), torch.zeros(1, 4, 16))

    @job.step
    def train_step(step):
        nonlocal hidden
        inputs = torch.randn(5, 4, 8)
        optimizer.zero_grad()
        hidden = tuple(part.detach() for part in hidden)
        outputs, hidden = model(inputs, hidden)
        loss = nn.functional.mse_loss(outputs, inputs.sum(2, keepdim=True))
        loss.backward()
        optimizer.step()
        return loss.item()

    for step in job.steps(40):
        trace.line(f"step {step}", loss=train_step(step))
    trace.final(model=model, optimizer=optimizer)


main()
