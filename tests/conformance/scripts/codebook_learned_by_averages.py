"""A quantizer whose codebook is buffers: sums of all ranks are averaged into it inside the forward, dead codes are redrawn."""

# group: state
# expect: bitwise

from _common import DDP, dist, join_seeded, nn, sharded_loader, start_trace, torch
from torch.utils.data import TensorDataset


class Quantizer(nn.Module):
    def __init__(self, codes=12, width=4):
        super().__init__()
        self.register_buffer("codebook", torch.randn(codes, width))
        self.register_buffer("count", torch.ones(codes))
        self.register_buffer("total", self.codebook.clone())

    def forward(self, x):
        chosen = torch.cdist(x, self.codebook).argmin(1)
        quantized = self.codebook[chosen]
        if self.training:
            with torch.no_grad():
                member = nn.functional.one_hot(chosen, len(self.codebook)).float()
                count, total = member.sum(0), member.T @ x
                fresh = x[torch.randperm(len(x))[:1]].clone()
                dist.all_reduce(count)
                dist.all_reduce(total)
                dist.broadcast(fresh, src=0)
                self.count.lerp_(count, 0.2)
                self.total.lerp_(total, 0.2)
                dead = self.count < 0.2
                self.total[dead] = fresh
                self.count[dead] = 1.0
                self.codebook.copy_(self.total / self.count[:, None])
        return x + (quantized - x).detach(), nn.functional.mse_loss(x, quantized.detach())


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 4))
        self.quantize = Quantizer()
        self.decode = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 10))

    def forward(self, x):
        code, commitment = self.quantize(self.encode(x))
        return nn.functional.mse_loss(self.decode(code), x) + 0.25 * commitment


job = join_seeded()
model = DDP(AutoEncoder(), broadcast_buffers=False)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
data = TensorDataset(torch.randn(120, 10))
loader = sharded_loader(data, 8)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(samples):
    optimizer.zero_grad()
    loss = model(samples)
    loss.backward()
    optimizer.step()
    return loss.item()


for (samples,) in job.batches(loader, steps=12):
    loss = train_step(samples)
    trace.line(f"step {job.committed}", loss=loss, codebook=model.module.quantize.codebook)

trace.final(model=model, optimizer=optimizer)
