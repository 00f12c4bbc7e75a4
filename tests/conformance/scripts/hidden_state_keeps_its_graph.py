"""Backpropagation through four steps: a step passes a tensor with its graph to the next one; no other rank can receive that.

The weights stay as they are in these four steps (their gradients add up), so that torch accepts a backward through all of them.
"""

# group: unregistered state
# expect: told US1431 "hidden"

from _common import DDP, join_seeded, nn, start_trace, torch


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.RNN(8, 16), nn.Linear(16, 1)

    def forward(self, inputs, hidden):
        outputs, hidden = self.cell(inputs, hidden)
        return self.head(outputs), hidden


def main():
    job = join_seeded()
    model = DDP(Recurrent())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    job.register(model=model, optimizer=optimizer)
    trace = start_trace(job)
    hidden = torch.zeros(1, 4, 16)

    @job.step
    def train_step(step):
        nonlocal hidden
        inputs = torch.randn(5, 4, 8)
        if step % 4 == 0:
            hidden = hidden.detach()
        outputs, hidden = model(inputs, hidden)
        loss = nn.functional.mse_loss(outputs, inputs.sum(2, keepdim=True))
        loss.backward(retain_graph=True)
        if step % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
        return loss.item()

    for step in job.steps(40):
        trace.line(f"step {step}", loss=train_step(step))
    trace.final(model=model, optimizer=optimizer)


main()
