"""A queue of features is made before the second epoch, passed to the function that trains, and written in place by its step."""

# group: unregistered state
# kills: backward@2:1 forward@7:2 backward@9:1 vote@11:2 between@13:1 forward@15:0
# expect: told US1423 "queue"

from _common import DDP, join_seeded, nn, random_dataset, sharded_loader, start_trace, torch

job = join_seeded()
model = DDP(nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.Linear(24, 6)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
loader = sharded_loader(random_dataset(72, 8, 1), 4)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


def train(queue):
    @job.step
    def train_step(inputs):
        optimizer.zero_grad()
        features = nn.functional.normalize(model(inputs), dim=1)
        loss = features.pow(3).sum()
        if queue is not None:
            loss = loss + (features.sum(1) * (features.detach() @ queue.T).exp().mean(1)).sum()
            queue[4:] = queue[:-4].clone()
            queue[:4] = features.detach()
        loss.backward()
        optimizer.step()
        return loss.item()

    for inputs, _ in job.batches(loader):
        loss = train_step(inputs)
        trace.line(f"step {job.committed}", loss=loss, queue=queue)


def main():
    queue = None
    for epoch in range(3):
        loader.sampler.set_epoch(epoch)
        if epoch == 1:
            queue = torch.zeros(12, 6)
        train(queue)
    trace.final(model=model, optimizer=optimizer, queue=queue)


main()
