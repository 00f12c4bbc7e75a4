"""A class that is defined within main() counts in its own attribute how many batches all of its instances have corrupted."""

# group: state out of sight
# expect: told US1423 "Corruption.hardest"

from _common import DDP, join_seeded, mlp, nn, start_trace, torch


def main():
    job = join_seeded()

    class Corruption:
        made = 0
        hardest = 0.0

        def __init__(self, strength):
            self.strength = strength

        def __call__(self, batch):
            Corruption.made += 1
            keep = torch.rand_like(batch) > min(0.6, self.strength * Corruption.made)
            Corruption.hardest = max(Corruption.hardest, 1 - keep.float().mean().item())
            return batch * keep

    model = DDP(mlp(8, 24, 1, nn.ReLU))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    job.register(model=model, optimizer=optimizer)
    trace = start_trace(job)

    @job.step
    def train_step(inputs):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(Corruption(0.03)(inputs)), inputs.sum(1, keepdim=True))
        loss = loss * (1 + Corruption.hardest)
        loss.backward()
        optimizer.step()
        return loss.item()

    for step in job.steps(14):
        loss = train_step(torch.randn(4, 8))
        trace.line(f"step {step}", loss=loss, made=Corruption.made)

    trace.final(model=model, optimizer=optimizer)


if __name__ == "__main__":
    main()
