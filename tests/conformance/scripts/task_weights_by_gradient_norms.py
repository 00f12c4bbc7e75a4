"""As in GradNorm: main()'s weights of two tasks follow the gradients of the shared layer, set with nonlocal."""

# group: unregistered state
# expect: bitwise

from _common import DDP, dist, join_seeded, nn, start_trace, torch


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Linear(8, 16)
        self.first, self.second = nn.Linear(16, 1), nn.Linear(16, 4)

    def forward(self, inputs):
        hidden = torch.tanh(self.shared(inputs))
        return self.first(hidden), self.second(hidden)


def main():
    job = join_seeded()
    model = DDP(TwoHeads())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    job.register(model=model, optimizer=optimizer)
    trace = start_trace(job)
    first_weight, second_weight = 1.0, 1.0

    @job.step
    def train_step(inputs, labels):
        nonlocal first_weight, second_weight
        optimizer.zero_grad()
        values, logits = model(inputs)
        first = nn.functional.mse_loss(values, inputs.sum(1, keepdim=True))
        second = nn.functional.cross_entropy(logits, labels)
        shared = model.module.shared.weight
        weighted = first_weight * first, second_weight * second
        norms = torch.stack([torch.autograd.grad(loss, shared, retain_graph=True)[0].norm() for loss in weighted])
        dist.all_reduce(norms)
        mean = norms.mean()
        first_weight *= (mean / norms[0]).pow(0.2).item()
        second_weight *= (mean / norms[1]).pow(0.2).item()
        total = first_weight + second_weight
        first_weight, second_weight = 2 * first_weight / total, 2 * second_weight / total
        (first_weight * first + second_weight * second).backward()
        optimizer.step()
        return first.item(), second.item()

    for step in job.steps(12):
        first, second = train_step(torch.randn(4, 8), torch.randint(4, (4,)))
        trace.line(f"step {step}", first=first, second=second, weights=[first_weight, second_weight])

    trace.final(model=model, optimizer=optimizer, weights=[first_weight, second_weight])


if __name__ == "__main__":
    main()
