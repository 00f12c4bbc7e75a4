"""HSDP with a MixedPrecisionPolicy: computes in bfloat16, reduces gradients in float32, keeps float32 weights."""

# ranks: 4
# group: fsdp
# expect: bitwise

from _common import nn, square_mesh, start_trace, torch
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import understudy

job = understudy.join()
mesh = square_mesh("replicate", "shard")
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 4))
for index in (0, 3):
    fully_shard(model[index], mesh=mesh, mp_policy=policy)
fully_shard(model, mesh=mesh, mp_policy=policy)
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(step):
    inputs = torch.randn(8, 8)
    labels = inputs[:, :4].argmax(1)
    loss = nn.functional.cross_entropy(model(inputs).float(), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
