"""The student learns from its weights of up to four steps ago: a deep copy of a state dict of more than 1 MiB, local to main()."""

# group: state out of sight
# expect: told US1422 "teacher_state"

import copy

from _common import DDP, join_seeded, nn, start_trace, torch
from torch.func import functional_call


def main():
    job = join_seeded()
    net = nn.Sequential(
        nn.Linear(16, 400), nn.LayerNorm(400), nn.GELU(), nn.Linear(400, 400), nn.GELU(), nn.Linear(400, 400), nn.GELU(), nn.Linear(400, 5)
    )
    model = DDP(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    job.register(model=model, optimizer=optimizer)
    trace = start_trace(job)
    teacher_state = copy.deepcopy(net.state_dict())

    @job.step
    def train_step(inputs, labels):
        with torch.no_grad():
            soft = functional_call(net, teacher_state, (inputs,)).softmax(1)
        optimizer.zero_grad()
        logits = model(inputs + 0.2 * torch.randn_like(inputs))
        loss = nn.functional.cross_entropy(logits, labels) + nn.functional.cross_entropy(logits, soft)
        loss.backward()
        optimizer.step()
        return loss.item()

    for step in job.steps(14):
        loss = train_step(torch.randn(4, 16), torch.randint(5, (4,)))
        trace.line(f"step {step}", loss=loss)
        if step % 4 == 3:
            teacher_state = copy.deepcopy(net.state_dict())

    trace.final(model=model, optimizer=optimizer, teacher=teacher_state)


if __name__ == "__main__":
    main()
