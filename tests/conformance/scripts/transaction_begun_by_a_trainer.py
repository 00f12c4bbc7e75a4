"""A trainer opens each step by `job.begin`, records micro-batches and the clipping as calls, and counts and draws between them itself."""

# ranks: 2
# group: api
# expect: bitwise

from _common import DDP, dist, join_seeded, mlp, nn, random_dataset, sharded_loader, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
loader = sharded_loader(random_dataset(96, 8, 1), 8)
total = torch.zeros(())
counters = job.state(seen=0, micro=0, noise=0.0)
job.register(model=model, optimizer=optimizer, total=total)
trace = start_trace(job)


class Trainer:
    parts = 2

    def micro_step(self, inputs, targets, last):
        counters.micro += 1
        with torch.no_grad():
            model.module[2].p = 0.1 + 0.001 * (counters.seen % 7)
        model.require_backward_grad_sync = last
        loss = nn.functional.mse_loss(model(inputs + 0.01 * torch.rand(())), targets)
        (loss / self.parts).backward()
        return loss.detach()

    def step(self, inputs, targets):
        update = job.begin("Trainer.step")
        if update.passed:
            return update.result
        update.call(optimizer.zero_grad)
        counters.seen += 1
        for part in range(self.parts):
            counters.noise += torch.rand(()).item()
            loss = update.call(self.micro_step, inputs[part::2] * counters.noise, targets[part::2], part == self.parts - 1)
            total.add_(loss)
        norm = update.call(nn.utils.clip_grad_norm_, list(model.parameters()), 1.0)
        optimizer.step()
        update.commit((loss.item(), norm.item(), total.item(), counters.seen, counters.micro, counters.noise))
        return update.result

    def evaluate(self, inputs):
        scoring = job.begin("Trainer.evaluate", "section")
        scoring.commit(scoring.call(self.score, inputs))
        return scoring.result

    @torch.no_grad()
    def score(self, inputs):
        score = model(inputs).mean()
        dist.all_reduce(score)
        return score.item()


trainer = Trainer()
for inputs, targets in job.batches(loader, steps=16):
    loss, norm, summed, seen, micro, noise = trainer.step(inputs, targets)
    trace.line(f"step {job.committed}", loss=loss, norm=norm, total=summed, seen=seen, micro=micro, noise=noise)
    trace.line(f"score {job.committed}", score=trainer.evaluate(inputs))

trace.final(model=model, optimizer=optimizer, total=total)
