"""The `state_dict` of an adapter answers for a trainer, which `owns` names; one of its counts differs from rank to rank."""

# group: state
# expect: bitwise

from _common import DDP, join_seeded, mlp, nn, random_dataset, sharded_loader, start_trace, torch

job = join_seeded()


class Trainer:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer
        self.tokens, self.losses = 0, []

    def train(self, inputs, targets):
        loss = nn.functional.mse_loss(self.model(inputs), targets)
        loss.backward()
        self.tokens += inputs.numel() * (job.rank + 1)
        self.losses.append(loss.item())
        self.optimizer.step()
        self.optimizer.zero_grad()
        return sum(self.losses[-3:]) / self.tokens


class Adapter:
    def __init__(self, trainer):
        self.trainer = trainer

    def state_dict(self):
        return {"tokens": self.trainer.tokens, "losses": self.trainer.losses}

    def load_state_dict(self, state):
        self.trainer.tokens, self.trainer.losses = state["tokens"], list(state["losses"])


model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
trainer = Trainer(model, optimizer)
loader = sharded_loader(random_dataset(96, 8, 1), 4)
job.register(model=model, optimizer=optimizer, trainer=Adapter(trainer), owns=[trainer])
trace = start_trace(job)
train_step = job.step(trainer.train)

for inputs, targets in job.batches(loader, steps=12):
    mean = train_step(inputs, targets)
    trace.line(f"step {job.committed}", mean=mean, tokens=trainer.tokens)

trace.final(model=model, optimizer=optimizer)
