"""A trainer that catches an out-of-memory error halves its micro batch for good; it happens in step 10, with the first long inputs."""

# group: state out of sight
# expect: bitwise

from _common import dist, join_seeded, nn, start_trace, torch


class Trainer:
    def __init__(self, job, limit=500):
        self.job, self.limit = job, limit
        self.net = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Dropout(0.2), nn.Linear(24, 1))
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-2)
        self.micro_batch = 16
        job.register(net=self.net, optimizer=self.optimizer)

    def accumulate(self, inputs):
        total = 0.0
        for part in inputs.split(self.micro_batch):
            noisy = part + 0.1 * torch.randn_like(part)
            if part.numel() > self.limit:
                raise RuntimeError("out of memory")
            loss = nn.functional.smooth_l1_loss(self.net(noisy), part.sum(2, keepdim=True)) * len(part) / len(inputs)
            (loss * (1 + noisy.std().item())).backward()
            total += loss.item()
        return total

    def train_step(self, inputs):
        while True:
            self.optimizer.zero_grad()
            try:
                loss = self.accumulate(inputs)
                break
            except RuntimeError as error:
                if "out of memory" not in str(error):
                    raise
                self.micro_batch //= 2
        for p in self.net.parameters():
            dist.all_reduce(p.grad)
            p.grad /= self.job.world_size
        self.optimizer.step()
        return loss


def main():
    job = join_seeded()
    trainer = Trainer(job)
    trace = start_trace(job)
    train_step = job.step(trainer.train_step)
    for step in job.steps(14):
        loss = train_step(torch.randn(16, 12 if step == 10 else 5, 6))
        trace.line(f"step {step}", loss=loss, micro=trainer.micro_batch)
    trace.final(net=trainer.net, optimizer=trainer.optimizer, micro=trainer.micro_batch)


if __name__ == "__main__":
    main()
