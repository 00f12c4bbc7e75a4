"""A Trainer with global_step, best and patience: if an evaluation is not better twice, the learning rate is halved."""

# group: unregistered state
# expect: bitwise

from _common import DDP, dist, join_seeded, mlp, nn, start_trace, torch


class Trainer:
    def __init__(self, job, model, optimizer, patience=2):
        self.job, self.model, self.optimizer = job, model, optimizer
        self.global_step = 0
        self.best = float("inf")
        self.bad = 0
        self.patience = patience
        self.held_out = torch.randn(30, 8)
        self.train_step = job.step(self._train_step)
        self.evaluate = job.section(self._evaluate)

    def _train_step(self, inputs):
        self.model.train()
        smoothing = 1 / (1 + self.global_step)
        targets = (1 - smoothing) * inputs.sum(1, keepdim=True)
        self.optimizer.zero_grad()
        loss = nn.functional.mse_loss(self.model(inputs), targets)
        loss.backward()
        self.optimizer.step()
        self.global_step += 1
        return loss.item()

    @torch.no_grad()
    def _evaluate(self):
        self.model.eval()
        inputs = self.held_out[self.job.rank :: self.job.world_size]
        loss = nn.functional.mse_loss(self.model(inputs), inputs.sum(1, keepdim=True))
        dist.all_reduce(loss)
        return loss.item() / self.job.world_size

    def after_evaluation(self, loss):
        if loss < 0.8 * self.best:
            self.best, self.bad = loss, 0
            return
        self.bad += 1
        if self.bad >= self.patience:
            self.bad = 0
            for group in self.optimizer.param_groups:
                group["lr"] *= 0.5

    def fit(self, steps, trace):
        for step in self.job.steps(steps):
            trace.line(f"step {step}", loss=self.train_step(torch.randn(4, 8)))
            if step % 2 == 1:
                found = self.evaluate()
                self.after_evaluation(found)
                trace.line(f"evaluation {step}", loss=found, best=self.best, bad=self.bad, global_step=self.global_step)


job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.GELU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trainer = Trainer(job, model, optimizer)
trace = start_trace(job)
trainer.fit(14, trace)
trace.final(model=model, optimizer=optimizer, best=trainer.best, bad=trainer.bad, global_step=trainer.global_step)
