"""A running second moment of each parameter's gradient in a dict by the parameter's id, by which the step scales the gradient."""

# group: reported by users
# expect: told US1423 "moments"

from _common import DDP, join_seeded, mlp, nn, random_dataset, sharded_loader, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.Tanh))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
data = random_dataset(96, 8, 1)
loader = sharded_loader(data, 4)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
moments = {}  # id of the parameter: its moment
counts = {id(p): 0 for p in model.parameters()}


def scale_gradients():
    for parameter in model.parameters():
        known = moments.get(id(parameter))
        square = parameter.grad**2
        moments[id(parameter)] = square if known is None else 0.9 * known + 0.1 * square
        counts[id(parameter)] += 1
        bias = 1 - 0.9 ** counts[id(parameter)]
        parameter.grad /= (moments[id(parameter)] / bias).sqrt() + 1e-3


@job.step
def train_step(batch):
    inputs, targets = batch
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    scale_gradients()
    optimizer.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer, moments=[moments[id(p)] for p in model.parameters()])
