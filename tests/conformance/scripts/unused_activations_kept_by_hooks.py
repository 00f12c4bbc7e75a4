"""Harmless: forward hooks keep each layer's last output and its statistics for later inspection."""

# group: unregistered state
# expect: bitwise

from _common import DDP, join_seeded, nn, start_trace, torch

job = join_seeded()
net = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 1))
activations, dead_share = {}, {}


def keep(name):
    def hook(module, inputs, output):
        activations[name] = output.detach()
        dead_share.setdefault(name, []).append((output == 0).float().mean().item())

    return hook


for name, layer in net.named_children():
    layer.register_forward_hook(keep(name))
model = DDP(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss)

if job.rank == 0:
    print(", ".join(f"{name}: {tuple(output.shape)}" for name, output in activations.items()))
trace.final(model=model, optimizer=optimizer)
