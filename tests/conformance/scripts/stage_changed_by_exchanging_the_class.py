"""An object goes from one stage of the training to the next by exchanging its own __class__."""

# group: state out of sight
# expect: told US1423 "stage"

from _common import DDP, dist, join_seeded, mlp, nn, start_trace, torch


class Stage:
    def loss(self, outputs, targets):
        return nn.functional.l1_loss(outputs, targets)

    def seen(self, loss):
        if loss < 2.3:
            self.__class__ = Middle


class Middle(Stage):
    def loss(self, outputs, targets):
        return nn.functional.smooth_l1_loss(outputs, targets)

    def seen(self, loss):
        if loss < 1.7:
            self.__class__ = Last


class Last(Stage):
    def loss(self, outputs, targets):
        return nn.functional.mse_loss(outputs, targets)

    def seen(self, loss):
        pass


job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
stage = Stage()


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    loss = stage.loss(model(inputs), inputs.sum(1, keepdim=True))
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    stage.seen(mean.item() / job.world_size)
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(14):
    loss = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss, stage=type(stage).__name__)

trace.final(model=model, optimizer=optimizer)
