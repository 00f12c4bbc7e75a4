"""The parsed arguments serve as state: every third iteration main() lowers args.noise, and the step reads it."""

# group: unregistered state
# expect: bitwise
# arguments: --noise 0.9

import argparse

from _common import DDP, join_seeded, nn, start_trace, torch


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--noise", type=float, default=0.8)
    parser.add_argument("--noise-decay", type=float, default=0.7)
    return parser.parse_args()


def main():
    args = parse()
    job = join_seeded()
    model = DDP(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    job.register(model=model, optimizer=optimizer)
    trace = start_trace(job)

    @job.step
    def train_step():
        clean = torch.randn(6, 8)
        noisy = clean + args.noise * torch.randn(6, 8)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(noisy), clean)
        loss.backward()
        optimizer.step()
        return loss.item()

    for step in job.steps(args.steps):
        loss = train_step()
        if (step + 1) % 3 == 0:
            args.noise *= args.noise_decay
        trace.line(f"step {step}", loss=loss, noise=args.noise)

    trace.final(model=model, optimizer=optimizer, noise=args.noise)


if __name__ == "__main__":
    main()
