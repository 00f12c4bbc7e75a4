"""A thread makes batches in advance with its own generator, and puts them into a short queue from which the step takes them."""

# group: state out of sight
# expect: told US1423 "batches._queue.queue[0]"

import queue
import threading

from _common import DDP, join_seeded, mlp, nn, start_trace, torch


class Prefetcher:
    def __init__(self, seed):
        self._queue = queue.Queue(maxsize=2)
        self._seed = seed
        threading.Thread(target=self._fill, daemon=True).start()

    def _fill(self):
        generator = torch.Generator().manual_seed(self._seed)
        scale = 1.0
        while True:
            self._queue.put(scale * torch.randn(4, 8, generator=generator))
            scale *= 0.97

    def next(self):
        return self._queue.get()


def main():
    job = join_seeded()
    model = DDP(mlp(8, 24, 1, nn.ReLU))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    job.register(model=model, optimizer=optimizer)
    trace = start_trace(job)
    batches = Prefetcher(50 + job.rank)

    @job.step
    def train_step():
        inputs = batches.next()
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
        loss.backward()
        optimizer.step()
        return loss.item()

    for step in job.steps(14):
        loss = train_step()
        trace.line(f"step {step}", loss=loss)

    trace.final(model=model, optimizer=optimizer)


if __name__ == "__main__":
    main()
