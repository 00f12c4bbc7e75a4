"""Diffusion noise comes from a torch.Generator, seeded by rank, that is a local name of main()."""

# group: unregistered state
# expect: bitwise

from _common import DDP, join_seeded, mlp, nn, start_trace, torch


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp(9, 32, 8, nn.SiLU)

    def forward(self, noisy, level):
        return self.net(torch.cat([noisy, level], 1))


def main():
    job = join_seeded()
    model = DDP(Denoiser())
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    job.register(model=model, optimizer=optimizer)
    trace = start_trace(job)
    generator = torch.Generator().manual_seed(7 + job.rank)

    @job.step
    def train_step(clean):
        level = torch.rand(len(clean), 1, generator=generator)
        noise = torch.randn(clean.shape, generator=generator)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model((1 - level) * clean + level * noise, level), noise)
        loss.backward()
        optimizer.step()
        return loss.item()

    for step in job.steps(12):
        loss = train_step(torch.randn(5, 8) + 2)
        trace.line(f"step {step}", loss=loss)

    trace.final(model=model, optimizer=optimizer, generator=generator)


if __name__ == "__main__":
    main()
