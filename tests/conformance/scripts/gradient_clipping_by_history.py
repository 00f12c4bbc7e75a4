"""Gradients are clipped at a quantile of the norms so far, which an object with a state_dict remembers."""

# group: state
# expect: bitwise

from _common import DDP, join_seeded, mlp, nn, random_dataset, sharded_loader, start_trace, torch


class Clipper:
    def __init__(self, share):
        self.share = share
        self.norms = []

    def clip(self, parameters):
        norm = nn.utils.get_total_norm([p.grad for p in parameters]).item()
        self.norms.append(norm)
        limit = sorted(self.norms)[int(self.share * (len(self.norms) - 1))]
        nn.utils.clip_grads_with_norm_(parameters, limit, torch.tensor(norm))
        return limit

    def state_dict(self):
        return {"norms": list(self.norms)}

    def load_state_dict(self, state):
        self.norms = list(state["norms"])


job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
clipper = Clipper(0.3)
data = random_dataset(96, 8, 1)
loader = sharded_loader(data, 4)
job.register(model=model, optimizer=optimizer, clipper=clipper)
trace = start_trace(job)


@job.step
def train_step(batch):
    inputs, targets = batch
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    limit = clipper.clip(list(model.parameters()))
    optimizer.step()
    return loss.item(), limit


for batch in job.batches(loader, steps=12):
    loss, limit = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss, limit=limit)

trace.final(model=model, optimizer=optimizer, clipper=clipper)
