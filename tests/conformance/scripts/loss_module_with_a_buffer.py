"""As in DINO: the loss is a module with a buffer, the centre of the teacher's outputs, and is not registered."""

# group: unregistered state
# expect: bitwise

import copy

from _common import DDP, dist, join_seeded, nn, start_trace, torch


class CentredLoss(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("centre", torch.zeros(width))

    def forward(self, student, teacher):
        wanted = ((teacher - self.centre) / 0.1).softmax(1)
        loss = nn.functional.cross_entropy(student / 0.3, wanted)
        self.update(teacher)
        return loss

    @torch.no_grad()
    def update(self, teacher):
        mean = teacher.mean(0)
        dist.all_reduce(mean)
        self.centre = 0.8 * self.centre + 0.2 * mean / dist.get_world_size()


job = join_seeded()
student = nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.Linear(24, 6))
teacher = copy.deepcopy(student).requires_grad_(False)
model = DDP(student)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
dino_loss = CentredLoss(6)
job.register(model=model, teacher=teacher, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    one, other = inputs + 0.2 * torch.randn_like(inputs), inputs + 0.2 * torch.randn_like(inputs)
    loss = dino_loss(model(one), teacher(other))
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for slow, fast in zip(teacher.parameters(), student.parameters(), strict=True):
            slow.lerp_(fast, 0.1)
    return loss.item()


for step in job.steps(12):
    loss = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss, centre=dino_loss.centre)

trace.final(model=model, teacher=teacher, optimizer=optimizer, centre=dino_loss.centre)
