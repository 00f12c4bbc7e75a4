"""A frozen encoder's features are computed once for each sample, with the noise of that time, and kept in an OrderedDict."""

# group: unregistered state
# expect: bitwise

from collections import OrderedDict

from _common import DDP, join_seeded, mlp, nn, start_trace, torch
from torch.utils.data import DataLoader, DistributedSampler


class FeatureCache:
    def __init__(self, encoder, items, capacity):
        self.encoder, self.items, self.capacity = encoder, items, capacity
        self.features = OrderedDict()

    @torch.no_grad()
    def __getitem__(self, index):
        if index in self.features:
            self.features.move_to_end(index)
            return self.features[index]
        found = self.encoder(self.items[index] + 0.3 * torch.randn(8))
        self.features[index] = found
        if len(self.features) > self.capacity:
            self.features.popitem(last=False)
        return found


job = join_seeded()
encoder = nn.Sequential(nn.Linear(8, 12), nn.Tanh()).requires_grad_(False)
model = DDP(mlp(12, 16, 1, nn.GELU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
items = torch.randn(36, 8)
sampler = DistributedSampler(range(36))
loader = DataLoader(range(36), batch_size=4, sampler=sampler)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
cache = FeatureCache(encoder, items, capacity=10)


@job.step
def train_step(indices):
    features = torch.stack([cache[index] for index in indices.tolist()])
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(features), items[indices].sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


for indices in job.batches(loader, steps=14):
    loss = train_step(indices)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer, cached=list(cache.features), features=list(cache.features.values()))
