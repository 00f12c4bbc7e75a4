"""HSDP with ignored_params: an embedding that is not sharded, whose gradient the script averages by hand."""

# ranks: 4
# group: fsdp
# expect: bitwise

from _common import dist, join_seeded, nn, square_mesh, start_trace, torch
from torch.distributed.fsdp import fully_shard

job = join_seeded()
mesh = square_mesh("replicate", "shard")
embedding = nn.Embedding(30, 12)
model = nn.Sequential(embedding, nn.Linear(12, 24), nn.GELU(), nn.Dropout(0.1), nn.Linear(24, 30))
fully_shard(model, mesh=mesh, ignored_params={embedding.weight})
sharded = torch.optim.AdamW([p for p in model.parameters() if p is not embedding.weight], lr=5e-3)
whole = torch.optim.SGD([embedding.weight], lr=0.1, momentum=0.9)
job.register(model=model, sharded=sharded, whole=whole)
trace = start_trace(job)


@job.step
def train_step(step):
    text = torch.randint(0, 30, (5, 7))
    loss = nn.functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
    sharded.zero_grad()
    whole.zero_grad()
    loss.backward()
    dist.all_reduce(embedding.weight.grad)
    embedding.weight.grad.div_(job.world_size)
    sharded.step()
    whole.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, sharded=sharded, whole=whole)
