"""A trainer with a method for an epoch, which contains the loop, and another one for the evaluation after it; each rank's own average of
losses, a plain attribute that changes inside the step, sets the noise of the next one.
"""

# group: unregistered state
# expect: bitwise

from _common import DDP, dist, join_seeded, mlp, nn, random_dataset, sharded_loader, torch
from _trace import Trace


class Trainer:
    def __init__(self, job, model, optimizer, loader):
        self.job, self.model, self.optimizer, self.loader = job, model, optimizer, loader
        self.local_rank = job.rank
        self.save_every = 2
        self.smooth = 1.0
        self.total = 0
        self.train_step = job.step(self._train_step)
        self.evaluate = job.section(self._evaluate)

    def _train_step(self, batch):
        inputs, targets = batch
        inputs = inputs + 0.1 * self.smooth * torch.randn_like(inputs)
        self.optimizer.zero_grad()
        loss = nn.functional.mse_loss(self.model(inputs), targets)
        loss.backward()
        self.smooth = 0.9 * self.smooth + 0.1 * loss.item()
        self.total += 1
        self.optimizer.step()
        return loss.item()

    def _evaluate(self, epoch):
        trace.line(f"evaluation {epoch} begins")
        found = torch.stack([p.detach().norm() for p in self.model.parameters()]).sum()
        dist.all_reduce(found)
        return found.item()

    def run_epoch(self, epoch):
        self.loader.sampler.set_epoch(epoch)
        for batch in self.job.batches(self.loader):
            loss = self.train_step(batch)
            trace.line(f"step {self.job.committed}", loss=loss, smooth=self.smooth, total=self.total)

    def train(self, epochs):
        for epoch in range(epochs):
            self.run_epoch(epoch)
            found = self.evaluate(epoch)
            trace.line(f"evaluation {epoch}", found=found)


def main():
    job = join_seeded()
    model = DDP(mlp(8, 24, 1, nn.ReLU))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    data = random_dataset(120, 8, 1)
    loader = sharded_loader(data, 4)
    job.register(model=model, optimizer=optimizer)
    torch.manual_seed(1 + job.rank)
    global trace
    trace = Trace(job.rank)
    Trainer(job, model, optimizer, loader).train(5)
    trace.final(model=model, optimizer=optimizer)


main()
