"""The same recurrent training with its hidden state in buffers, which each rank has for itself."""

# group: state
# expect: bitwise

from _common import DDP, join_seeded, nn, start_trace, torch

WIDTH, STREAMS, LENGTH = 16, 4, 5


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(3, WIDTH, batch_first=True)
        self.out = nn.Sequential(nn.Dropout(0.1), nn.Linear(WIDTH, 3))
        self.register_buffer("hidden", torch.zeros(1, STREAMS, WIDTH))

    def forward(self, window):
        output, hidden = self.gru(window, self.hidden.clone())
        self.hidden.copy_(hidden.detach())
        return self.out(output)


job = join_seeded()
model = DDP(Recurrent(), broadcast_buffers=False)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
signal = torch.randn(job.world_size, STREAMS, 12 * LENGTH + 1, 3)[job.rank].cumsum(1) * 0.1
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(number):
    window = signal[:, number * LENGTH : (number + 1) * LENGTH + 1]
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(window[:, :-1]), window[:, 1:])
    loss.backward()
    optimizer.step()
    return loss.item()


for number in job.steps(12):
    loss = train_step(number)
    trace.line(f"step {number}", loss=loss)

trace.final(model=model, optimizer=optimizer)
