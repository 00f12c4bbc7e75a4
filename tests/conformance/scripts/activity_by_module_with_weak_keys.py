"""Hooks keep a running activity of each module in a weakref.WeakKeyDictionary; the penalty of a layer depends on its past activity."""

# group: state out of sight
# expect: told US1423 "activity.means[0]"

import weakref

from _common import DDP, join_seeded, nn, start_trace, torch


class Activity:
    def __init__(self, net):
        self.means = weakref.WeakKeyDictionary()
        self.penalty = 0.0
        for part in net.modules():
            if isinstance(part, nn.ReLU):
                part.register_forward_hook(self.watch)

    def watch(self, module, inputs, output):
        usual = self.means.get(module, 0.5)
        self.penalty = self.penalty + (output.mean() - usual).square()
        self.means[module] = 0.8 * usual + 0.2 * output.mean().item()

    def taken(self):
        penalty, self.penalty = self.penalty, 0.0
        return penalty


def main():
    job = join_seeded()
    net = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 1))
    activity = Activity(net)
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    job.register(model=model, optimizer=optimizer)
    trace = start_trace(job)

    @job.step
    def train_step(inputs):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True)) + activity.taken()
        loss.backward()
        optimizer.step()
        return loss.item()

    for step in job.steps(14):
        loss = train_step(torch.randn(4, 8))
        trace.line(f"step {step}", loss=loss, usual=sum(activity.means.values()))

    trace.final(model=model, optimizer=optimizer)


if __name__ == "__main__":
    main()
