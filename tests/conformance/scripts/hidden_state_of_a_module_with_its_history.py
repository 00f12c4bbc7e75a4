"""A recurrent model keeps its state as an attribute, and detaches it from its graph at the beginning of the next pass: between two
steps the state still has its history. The model's head has the older weight norm.
"""

# group: unregistered state
# expect: bitwise

from _common import DDP, join_seeded, nn, start_trace, torch


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.LSTM(8, 16), nn.utils.weight_norm(nn.Linear(16, 1))
        self.hidden = (torch.zeros(1, 4, 16), torch.zeros(1, 4, 16))

    def forward(self, inputs):
        outputs, self.hidden = self.cell(inputs, tuple(part.detach() for part in self.hidden))
        return self.head(outputs)


def main():
    job = join_seeded()
    model = DDP(Recurrent())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    job.register(model=model, optimizer=optimizer)
    trace = start_trace(job)

    @job.step
    def train_step(step):
        inputs = torch.randn(5, 4, 8)
        optimizer.zero_grad()
        outputs = model(inputs)
        loss = nn.functional.mse_loss(outputs, inputs.sum(2, keepdim=True))
        loss.backward()
        optimizer.step()
        return loss.item()

    for step in job.steps(40):
        trace.line(f"step {step}", loss=train_step(step))
    trace.final(model=model, optimizer=optimizer)


main()
