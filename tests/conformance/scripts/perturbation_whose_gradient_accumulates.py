"""Adversarial training with one perturbation for all inputs: its gradient is never set to zero, and the next step goes along it."""

# group: state out of sight
# expect: told US1423 "perturbation.grad"

from _common import DDP, join_seeded, mlp, nn, random_dataset, sharded_loader, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
loader = sharded_loader(random_dataset(192, 8, 1), 4)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
perturbation = torch.zeros(8, requires_grad=True)


@job.step
def train_step(batch):
    inputs, targets = batch
    adversarial = inputs + perturbation
    if perturbation.grad is not None:
        adversarial = adversarial + 0.3 * nn.functional.normalize(perturbation.grad, dim=0)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(adversarial), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss, gradient=perturbation.grad)

trace.final(model=model, optimizer=optimizer, gradient=perturbation.grad)
