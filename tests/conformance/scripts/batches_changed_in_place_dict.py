"""The step pops the labels out of its batch, as many scripts do before model(**batch): a redo would not find them."""

# group: data
# expect: refused US1111

from _common import DDP, join_seeded, mlp, nn, sharded_loader, start_trace, torch


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp(8, 16, 1, nn.GELU)

    def forward(self, features):
        return self.net(features)


job = join_seeded()
model = DDP(Model())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = [{"features": torch.randn(8), "labels": torch.randn(1)} for _ in range(60)]
loader = sharded_loader(data, 4)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(batch):
    labels = batch.pop("labels")
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(**batch), labels)
    loss.backward()
    optimizer.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)
