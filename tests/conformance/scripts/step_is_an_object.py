"""The step is an object that can be called and that has no name of its own; its own average of losses sets the noise of the next step."""

# group: unregistered state
# expect: bitwise

from _common import DDP, join_seeded, mlp, nn, random_dataset, sharded_loader, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = start_trace(job)


class TrainStep:
    def __init__(self):
        self.smooth = 1.0

    def __call__(self, batch):
        inputs, targets = batch
        inputs = inputs + 0.1 * self.smooth * torch.randn_like(inputs)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        self.smooth = 0.9 * self.smooth + 0.1 * loss.item()
        optimizer.step()
        return loss.item()


train_step = job.step(TrainStep())


for batch in job.batches(sharded_loader(random_dataset(192, 8, 1), 4), steps=16):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)
