"""A GradScaler with enabled=False, as scripts keep it for a precision that does not need scaling."""

# group: precision
# expect: bitwise

from _common import DDP, mlp, nn, start_trace, torch

import understudy

job = understudy.join()
precision = torch.bfloat16
torch.manual_seed(0)
model = DDP(mlp(8, 32, 1, nn.GELU))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", enabled=precision == torch.float16)
job.register(model=model, optimizer=optimizer, scaler=scaler)
trace = start_trace(job)


@job.step
def train_step(step):
    inputs = torch.randn(8, 8)
    with torch.autocast("cpu", dtype=precision):
        loss = nn.functional.mse_loss(model(inputs).float(), inputs.sum(1, keepdim=True))
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    return loss.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer, scaler=scaler)
