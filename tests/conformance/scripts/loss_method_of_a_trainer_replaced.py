"""A trainer replaces its method for the loss by another one of its methods, once its average loss is low enough."""

# group: state out of sight
# expect: told US1423 "trainer.loss"

from _common import DDP, dist, join_seeded, mlp, nn, start_trace, torch


class Trainer:
    def __init__(self, job):
        self.job = job
        self.model = DDP(mlp(8, 24, 1, nn.ReLU))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=3e-2)
        job.register(model=self.model, optimizer=self.optimizer)
        self.train_step = job.step(self.train_step)

    def loss(self, output, targets):
        return (output - targets).abs().mean()

    def second_loss(self, output, targets):
        return (output - targets).square().mean() + 0.01 * output.square().mean()

    def third_loss(self, output, targets):
        return torch.log(torch.cosh(output - targets)).mean()

    def train_step(self, step, inputs):
        if step == 9:
            self.loss = self.third_loss
        self.optimizer.zero_grad()
        loss = self.loss(self.model(inputs), inputs.sum(1, keepdim=True))
        loss.backward()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        self.optimizer.step()
        if step < 9 and mean.item() / self.job.world_size < 2.5:
            self.loss = self.second_loss
        return loss.item()


def main():
    job = join_seeded()
    trainer = Trainer(job)
    trace = start_trace(job)
    for step in job.steps(14):
        loss = trainer.train_step(step, torch.randn(4, 8))
        trace.line(f"step {step}", loss=loss, by=trainer.loss.__name__)
    trace.final(model=trainer.model, optimizer=trainer.optimizer)


if __name__ == "__main__":
    main()
