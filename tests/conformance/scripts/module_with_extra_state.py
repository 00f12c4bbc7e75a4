"""A layer whose python state (a temperature and a history) is in its state_dict by get_extra_state."""

# group: state
# expect: bitwise

from _common import DDP, join_seeded, nn, sharded_loader, start_trace, torch
from torch.utils.data import TensorDataset


class Tempered(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.history = {"temperature": 2.0, "used": []}

    def forward(self, x):
        temperature = self.history["temperature"]
        if self.training:
            self.history["used"].append(temperature)
            self.history["temperature"] = max(0.5, temperature * 0.9)
        return self.linear(x) / temperature

    def get_extra_state(self):
        return {"temperature": self.history["temperature"], "used": list(self.history["used"])}

    def set_extra_state(self, state):
        self.history = {"temperature": state["temperature"], "used": list(state["used"])}


job = join_seeded()
model = DDP(nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Dropout(0.1), Tempered(24, 4)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = TensorDataset(torch.randn(96, 8), torch.randint(4, (96,)))
loader = sharded_loader(data, 4)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(batch):
    inputs, labels = batch
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs), labels)
    loss.backward()
    optimizer.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss, extra=model.module[3].get_extra_state())

trace.final(model=model, optimizer=optimizer, extra=model.module[3].get_extra_state())
