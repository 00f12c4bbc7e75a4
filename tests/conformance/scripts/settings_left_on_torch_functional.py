"""The step keeps a dict of running values as an attribute of torch.nn.functional, where every file of the project finds it."""

# group: state out of sight
# expect: told US1423 "project_settings['calls']"

import torch.nn.functional as F
from _common import DDP, join_seeded, mlp, nn, start_trace, torch

F.project_settings = {"scale": 1.0, "calls": 0}


def scaled_mse(outputs, targets):
    settings = F.project_settings
    settings["calls"] += 1
    loss = F.mse_loss(outputs, targets)
    settings["scale"] = 0.8 * settings["scale"] + 0.2 * loss.item()
    return loss / (settings["scale"] + 1 / settings["calls"])


def main():
    job = join_seeded()
    model = DDP(mlp(8, 24, 1, nn.ReLU))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    job.register(model=model, optimizer=optimizer)
    trace = start_trace(job)

    @job.step
    def train_step(inputs):
        optimizer.zero_grad()
        loss = scaled_mse(model(inputs), inputs.sum(1, keepdim=True))
        loss.backward()
        optimizer.step()
        return loss.item()

    for step in job.steps(14):
        loss = train_step(torch.randn(4, 8))
        trace.line(f"step {step}", loss=loss)

    trace.final(model=model, optimizer=optimizer)


if __name__ == "__main__":
    main()
