"""The state (h, c) of an LSTM goes from step to step as a tuple, for so many streams that it has more than 1 MiB."""

# group: state out of sight
# expect: told US1422 "memory"

from _common import DDP, join_seeded, nn, start_trace, torch

STREAMS, WIDTH, LENGTH = 1200, 128, 3


class Forecast(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, WIDTH, batch_first=True)
        self.out = nn.Linear(WIDTH, 4)

    def forward(self, series, memory):
        output, memory = self.lstm(series, memory)
        return self.out(output), memory


job = join_seeded()
model = DDP(Forecast())
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
memory = (torch.zeros(1, STREAMS, WIDTH), torch.zeros(1, STREAMS, WIDTH))


@job.step
def train_step(series):
    global memory
    optimizer.zero_grad()
    forecast, (h, c) = model(series[:, :-1], memory)
    loss = nn.functional.mse_loss(forecast, series[:, 1:])
    loss.backward()
    memory = (h.detach(), c.detach())
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(torch.randn(STREAMS, LENGTH + 1, 4).cumsum(1))
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer, memory=memory)
