"""A trainer leads its loops itself (`job.lead`): a fetcher of its own, epochs, a position that it writes down and goes to."""

# ranks: 2
# group: api
# expect: bitwise

from _common import DDP, dist, join_seeded, mlp, nn, random_dataset, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = random_dataset(64, 8, 1)
trace = start_trace(job)


class Fetcher:
    """Batches of 4 in an order that depends on the epoch, with noise from the stream of torch."""

    def __init__(self):
        self.epoch = self.cursor = 0

    def begin(self, epoch):
        self.epoch, self.cursor = epoch, 0
        self.order = torch.randperm(len(data), generator=torch.Generator().manual_seed(epoch))[job.rank :: job.world_size]

    def go_to(self, position):
        self.begin(position["epoch"])
        self.cursor = position["cursor"]

    def position(self):
        return {"epoch": self.epoch, "cursor": self.cursor}

    def __next__(self):
        if self.cursor + 4 > len(self.order):
            raise StopIteration
        chosen = self.order[self.cursor : self.cursor + 4]
        self.cursor += 4
        inputs, targets = data.tensors[0][chosen], data.tensors[1][chosen]
        return inputs + 0.01 * torch.randn_like(inputs), targets


def training_step(inputs, targets):
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    return loss.item()


@job.section
def evaluate():
    with torch.no_grad():
        score = model(data.tensors[0]).mean()
    dist.all_reduce(score)
    return score.item()


class Trainer:
    def __init__(self):
        self.fetcher = Fetcher()

    def fit(self, epochs):
        assert job.where().steps == 0 or job.newcomer
        for epoch in range(epochs):
            self.fetcher.begin(epoch)
            loop = job.lead(self.fetcher.position, self.fetcher.go_to)
            while True:
                try:
                    inputs, targets = loop.draw(next, self.fetcher)
                except StopIteration:
                    break
                loss = self.step(inputs, targets)
                trace.line(f"epoch {epoch} batch {loop.iteration}", loss=loss)
                if loop.iteration % 3 == 2:
                    trace.line(f"score {job.committed}", score=evaluate())
            loop.end()

    def step(self, inputs, targets):
        update = job.begin("Trainer.step")
        if not update.passed:
            update.call(optimizer.zero_grad)
            loss = update.call(training_step, inputs, targets)
            optimizer.step()
            update.commit(loss)
        return update.result


trainer = Trainer()
job.register(model=model, optimizer=optimizer, owns=[trainer, trainer.fetcher])
trainer.fit(2)
trace.final(model=model, optimizer=optimizer)
