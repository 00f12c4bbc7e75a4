"""A communication hook with error feedback; its state is registered: an object with state_dict and load_state_dict."""

# group: ddp
# expect: bitwise

from _common import DDP, join_seeded, nn, start_trace, torch
from torch.distributed import all_reduce, get_world_size


class Errors:
    """What rounding has taken away from each bucket so far."""

    def __init__(self):
        self.kept = {}

    def state_dict(self):
        return {"kept": dict(self.kept)}

    def load_state_dict(self, state):
        self.kept = dict(state["kept"])


def rounded(errors, bucket):
    whole = bucket.buffer() / get_world_size() + errors.kept.get(bucket.index(), 0.0)
    short = whole.to(torch.bfloat16).to(torch.float32)
    errors.kept[bucket.index()] = whole - short
    future = all_reduce(short, async_op=True).get_future()
    return future.then(lambda done: done.value()[0])


job = join_seeded()
net = nn.Sequential(*[part for _ in range(5) for part in (nn.Linear(24, 24), nn.Tanh())], nn.Linear(24, 1))
model = DDP(net)
errors = Errors()
model.register_comm_hook(errors, rounded)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.register(model=model, optimizer=optimizer, errors=errors)
trace = start_trace(job)


@job.step
def train_step():
    optimizer.zero_grad()
    inputs = torch.randn(5, 24)
    loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(10):
    trace.line(f"step {step}", loss=train_step())

trace.final(model=model, optimizer=optimizer, errors=errors)
