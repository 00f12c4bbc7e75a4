"""One optimizer for each parameter, stepped by a hook during backward as soon as its gradient is averaged."""

# group: optimizers
# expect: refused US4571

from _common import dist, join_seeded, mlp, nn, random_dataset, sharded_loader, start_trace, torch

job = join_seeded()
model = mlp(8, 32, 1, nn.GELU)
optimizers = {name: torch.optim.AdamW([p], lr=1e-2) for name, p in model.named_parameters()}
by_parameter = {p: optimizers[name] for name, p in model.named_parameters()}


def step_now(parameter):
    dist.all_reduce(parameter.grad)
    parameter.grad /= job.world_size
    by_parameter[parameter].step()
    parameter.grad = None


for parameter in model.parameters():
    parameter.register_post_accumulate_grad_hook(step_now)

data = random_dataset(96, 8, 1)
loader = sharded_loader(data, 4)
job.register(model=model, optimizers=optimizers)
trace = start_trace(job)


@job.step
def train_step(batch):
    inputs, targets = batch
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, **optimizers)
