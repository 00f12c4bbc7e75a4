"""Two of three ranks use a group for a second loss, which the third one does not have; all call new_group."""

# group: parallel
# expect: bitwise

from _common import DDP, dist, mlp, nn, start_trace, torch

import understudy

job = understudy.join()
teachers = dist.new_group([0, 2])
torch.manual_seed(0)
model = DDP(mlp(8, 32, 4, nn.GELU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(step):
    inputs = torch.randn(4, 8)
    logits = model(inputs)
    loss = nn.functional.cross_entropy(logits, inputs[:, :4].argmax(1))
    if job.rank in (0, 2):
        mean = logits.detach().softmax(1).mean(0)
        dist.all_reduce(mean, group=teachers)
        loss = loss + 0.1 * nn.functional.kl_div(logits.log_softmax(1), (mean / 2).expand_as(logits), reduction="batchmean")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
