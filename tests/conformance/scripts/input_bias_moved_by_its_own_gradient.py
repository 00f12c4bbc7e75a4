"""An object holds an input bias that no optimizer knows: it is moved by its gradient, which is halved and not dropped, as a momentum."""

# group: state out of sight
# expect: told US1423 "bias.value.grad"

from _common import DDP, dist, join_seeded, nn, start_trace, torch


class InputBias:
    def __init__(self, width, rate):
        self.value = torch.zeros(width, requires_grad=True)
        self.rate = rate

    @torch.no_grad()
    def move(self, ranks):
        total = self.value.grad.clone()
        dist.all_reduce(total)
        self.value -= self.rate * total / ranks
        self.value.grad *= 0.5


def main():
    job = join_seeded()
    model = DDP(nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    job.register(model=model, optimizer=optimizer)
    trace = start_trace(job)
    bias = InputBias(8, 0.2)

    @job.step
    def train_step(inputs):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs + bias.value), inputs.prod(1, keepdim=True).tanh())
        loss.backward()
        bias.move(job.world_size)
        optimizer.step()
        return loss.item()

    for step in job.steps(12):
        loss = train_step(torch.randn(4, 8))
        trace.line(f"step {step}", loss=loss, bias=bias.value.detach())

    trace.final(model=model, optimizer=optimizer)


if __name__ == "__main__":
    main()
