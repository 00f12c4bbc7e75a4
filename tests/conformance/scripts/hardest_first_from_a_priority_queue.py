"""Samples wait in a queue.PriorityQueue; the hardest are trained on and go back with their new loss."""

# group: state out of sight
# expect: told US1423 "waiting.queue"

import queue

from _common import DDP, join_seeded, mlp, nn, start_trace, torch


def main():
    job = join_seeded()
    model = DDP(mlp(8, 24, 1, nn.ReLU))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    inputs = torch.randn(60, 8)
    job.register(model=model, optimizer=optimizer)
    trace = start_trace(job)
    waiting = queue.PriorityQueue()
    for number in range(job.rank, len(inputs), job.world_size):
        waiting.put((-1.0, number))

    @job.step
    def train_step():
        chosen = [waiting.get()[1] for _ in range(4)]
        batch = inputs[chosen]
        optimizer.zero_grad()
        losses = (model(batch) - batch.sum(1, keepdim=True)).square().squeeze(1)
        loss = losses.mean()
        loss.backward()
        optimizer.step()
        for number, value in zip(chosen, losses.tolist(), strict=True):
            waiting.put((-value, number))
        return loss.item(), chosen

    for step in job.steps(14):
        loss, chosen = train_step()
        trace.line(f"step {step}", loss=loss, chosen=chosen)

    trace.final(model=model, optimizer=optimizer)


if __name__ == "__main__":
    main()
