"""HSDP whose evaluation collects the whole state on rank 0 (get_model_state_dict), as scripts do before they save it."""

# ranks: 4
# group: fsdp
# expect: bitwise

from _common import join_seeded, mlp, nn, square_mesh, start_trace, torch
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard

job = join_seeded()
mesh = square_mesh("replicate", "shard")
model = mlp(8, 24, 1, nn.GELU)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(step):
    inputs = torch.randn(4, 8)
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


@job.section
def collect():
    return get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)
    if job.committed % 4 == 0:
        trace.line(f"evaluation {job.committed}", whole=collect())

trace.final(model=model, optimizer=optimizer)
