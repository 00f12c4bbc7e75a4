"""The centre of the outputs, as DINO has it, is a subclass of torch.Tensor with a momentum that it raises by itself."""

# group: state out of sight
# expect: told US1423 "training.centre.momentum"

from _common import DDP, dist, join_seeded, nn, start_trace, torch


class Centre(torch.Tensor):
    momentum = 0.5

    def follow(self, outputs):
        mean = outputs.detach().mean(0)
        dist.all_reduce(mean)
        self.mul_(self.momentum).add_(mean / dist.get_world_size(), alpha=1 - self.momentum)
        self.momentum += 0.1 * (0.99 - self.momentum)


class Training:
    def __init__(self, net):
        self.student = DDP(net)
        self.centre = torch.zeros(6).as_subclass(Centre)


job = join_seeded()
training = Training(nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.Linear(24, 6)))
optimizer = torch.optim.SGD(training.student.parameters(), lr=0.05, momentum=0.9)
job.register(model=training.student, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    one = training.student(inputs + 0.1 * torch.randn_like(inputs))
    with torch.no_grad():
        soft = ((one.detach() - torch.Tensor(training.centre)) / 0.3).softmax(1)
    loss = -(soft.flip(0) * one.log_softmax(1)).sum(1).mean()
    loss.backward()
    training.centre.follow(one)
    optimizer.step()
    return loss.item(), training.centre.momentum


for step in job.steps(14):
    loss, momentum = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss, momentum=momentum)

trace.final(model=training.student, optimizer=optimizer)
