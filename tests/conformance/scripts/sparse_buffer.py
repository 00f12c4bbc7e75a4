"""A module with a sparse buffer."""

# group: reported by users
# expect: refused US1216 "mix"

from _common import DDP, join_seeded, nn, start_trace, torch


class Mixing(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 1)
        self.register_buffer("mix", torch.eye(8).roll(1, 0).to_sparse())

    def forward(self, inputs):
        return self.head(torch.sparse.mm(self.mix, inputs.t()).t())


job = join_seeded()
model = DDP(Mixing(), broadcast_buffers=False)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
