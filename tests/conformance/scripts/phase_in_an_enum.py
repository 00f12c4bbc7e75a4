"""A trainer is in one of three phases, members of an Enum, and moves on after a number of its own steps."""

# group: unregistered state
# expect: bitwise

import enum

from _common import DDP, join_seeded, nn, start_trace, torch


class Phase(enum.Enum):
    RECONSTRUCT = "reconstruct"
    SPARSE = "sparse"
    DENOISE = "denoise"


class Training:
    def __init__(self):
        self.phase = Phase.RECONSTRUCT
        self.left = 4

    def advance(self):
        self.left -= 1
        if self.left == 0:
            self.phase = Phase.SPARSE if self.phase is Phase.RECONSTRUCT else Phase.DENOISE
            self.left = 4


def main():
    job = join_seeded()
    encoder, decoder = nn.Sequential(nn.Linear(8, 16), nn.ReLU()), nn.Linear(16, 8)
    model = DDP(nn.Sequential(encoder, decoder))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    job.register(model=model, optimizer=optimizer)
    trace = start_trace(job)
    training = Training()

    @job.step
    def train_step(clean):
        noisy = clean + 0.3 * torch.randn_like(clean) if training.phase is Phase.DENOISE else clean
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(noisy), clean)
        if training.phase is Phase.SPARSE:
            loss = loss + 0.05 * encoder(noisy).abs().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    for step in job.steps(12):
        loss = train_step(torch.randn(4, 8))
        training.advance()
        trace.line(f"step {step}", loss=loss, phase=training.phase.value, left=training.left)

    trace.final(model=model, optimizer=optimizer, phase=training.phase.value)


if __name__ == "__main__":
    main()
