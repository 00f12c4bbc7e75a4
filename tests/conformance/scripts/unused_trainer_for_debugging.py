"""Harmless: a trainer keeps its last batch, its last and its worst loss, and the step of it, for debugging only."""

# group: unregistered state
# expect: bitwise

from _common import DDP, join_seeded, mlp, nn, random_dataset, sharded_loader, start_trace, torch


class Trainer:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer
        self.last_batch, self.last_loss = None, None
        self.worst = (float("-inf"), None, -1)
        self.calls = 0

    def train(self, batch):
        inputs, targets = self.last_batch = batch
        self.optimizer.zero_grad()
        loss = self.last_loss = nn.functional.mse_loss(self.model(inputs), targets)
        if loss.item() > self.worst[0]:
            self.worst = (loss.item(), inputs.clone(), self.calls)
        loss.backward()
        self.optimizer.step()
        self.calls += 1
        return loss.item()


job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = random_dataset(72, 8, 1)
loader = sharded_loader(data, 4)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
trainer = Trainer(model, optimizer)
train_step = job.step(trainer.train)

for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

print(f"the worst loss was {trainer.worst[0]:.3f} in step {trainer.worst[2]}")
trace.final(model=model, optimizer=optimizer)
