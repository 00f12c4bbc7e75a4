"""A bare trainable tensor whose gradient adds up over two steps before the optimizer uses it."""

# group: state
# expect: bitwise

from _common import dist, join_seeded, nn, start_trace, torch

job = join_seeded()
weight = torch.randn(8, 3).mul_(0.3).requires_grad_(True)
optimizer = torch.optim.Adam([weight], lr=2e-2)
samples, labels = torch.randn(96, 8), torch.randint(3, (96,))
job.register(weight=weight, optimizer=optimizer)
trace = start_trace(job)


def backward():
    chosen = torch.randint(len(samples), (4,))
    loss = nn.functional.cross_entropy(nn.functional.dropout(samples[chosen], 0.1) @ weight, labels[chosen])
    loss.backward()
    return loss.item()


@job.step
def gather():
    return backward()


@job.step
def train_step():
    loss = backward()
    dist.all_reduce(weight.grad)
    weight.grad /= 2 * job.world_size
    optimizer.step()
    optimizer.zero_grad()
    return loss


for number in job.steps(12):
    loss = train_step() if number % 2 else gather()
    trace.line(f"step {number}", loss=loss, weight=weight)

trace.final(weight=weight, optimizer=optimizer)
