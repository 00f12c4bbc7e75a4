"""Elastic weight consolidation: squared gradients of task one are summed in a dict of more than 1 MiB and hold the weights in task two."""

# group: state out of sight
# expect: told US1422 "importance"

from _common import DDP, join_seeded, nn, start_trace, torch

TASK_TWO = 6


def make_step(job, net, model, optimizer):
    importance = {name: torch.zeros_like(p) for name, p in net.named_parameters()}
    home = {}

    def penalty():
        return sum((importance[name] * (p - home[name]).square()).sum() for name, p in net.named_parameters())

    @job.step
    def train_step(step, inputs):
        targets = inputs.sum(1, keepdim=True) if step < TASK_TWO else inputs.abs().amax(1, keepdim=True)
        if step == TASK_TWO:
            home.update({name: p.detach().clone() for name, p in net.named_parameters()})
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        if home:
            loss = loss + 50 * penalty()
        loss.backward()
        if step < TASK_TWO:
            for name, p in net.named_parameters():
                importance[name] += p.grad.square()
        optimizer.step()
        return loss.item()

    return train_step


def main():
    job = join_seeded()
    net = nn.Sequential(nn.Linear(16, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 1))
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    job.register(model=model, optimizer=optimizer)
    trace = start_trace(job)
    train_step = make_step(job, net, model, optimizer)
    for step in job.steps(14):
        loss = train_step(step, torch.randn(4, 16))
        trace.line(f"step {step}", loss=loss)
    trace.final(model=model, optimizer=optimizer)


if __name__ == "__main__":
    main()
