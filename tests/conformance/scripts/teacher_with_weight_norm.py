"""A momentum teacher, never trained by gradients, whose head has the older weight norm: its weight is computed again in each forward
pass and kept as a plain attribute, which has no graph there.
"""

# group: unregistered state
# expect: bitwise

from _common import DDP, join_seeded, nn, start_trace, torch

WIDTH = 8


def main():
    job = join_seeded()

    def net():
        return nn.Sequential(nn.Linear(8, WIDTH), nn.GELU(), nn.utils.weight_norm(nn.Linear(WIDTH, 64, bias=False)))

    student, teacher = net(), net()
    teacher.load_state_dict(student.state_dict())
    for p in teacher.parameters():
        p.requires_grad = False
    model = DDP(student)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    job.register(model=model, teacher=teacher, optimizer=optimizer)
    trace = start_trace(job)

    @job.step
    def train_step(step):
        inputs = torch.randn(4, 8)
        optimizer.zero_grad()
        wanted = teacher(inputs + 0.1 * torch.randn(4, 8)).softmax(1)
        loss = -(wanted * model(inputs).log_softmax(1)).sum(1).mean()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for mine, its in zip(teacher.parameters(), student.parameters(), strict=True):
                mine.mul_(0.9).add_(its, alpha=0.1)
        return loss.item()

    for step in job.steps(40):
        trace.line(f"step {step}", loss=train_step(step))
    trace.final(model=model, teacher=teacher, optimizer=optimizer)


main()
