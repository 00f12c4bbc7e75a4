"""A custom EMA class binds a new dict of averaged weights after each step; the loss pulls towards them."""

# group: unregistered state
# expect: bitwise

from _common import DDP, join_seeded, mlp, nn, start_trace, torch


class EMA:
    def __init__(self, module, decay):
        self.module, self.decay = module, decay
        self.shadow = {name: p.detach().clone() for name, p in module.named_parameters()}

    def update(self):
        for name, p in self.module.named_parameters():
            self.shadow[name] = self.decay * self.shadow[name] + (1 - self.decay) * p.detach()


job = join_seeded()
net = mlp(8, 24, 1, nn.ReLU)
model = DDP(net)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
ema = EMA(net, 0.8)


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    with torch.no_grad():
        wanted = torch.func.functional_call(net, ema.shadow, (inputs,))
    output = model(inputs)
    loss = nn.functional.mse_loss(output, inputs.sum(1, keepdim=True)) + 0.5 * nn.functional.mse_loss(output, wanted)
    loss.backward()
    optimizer.step()
    ema.update()
    return loss.item()


for step in job.steps(12):
    loss = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer, shadow=ema.shadow)
