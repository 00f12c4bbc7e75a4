"""Harmless: lists of losses, rates and evaluations for a plot at the end, in a dict of main()."""

# group: unregistered state
# expect: bitwise

from _common import DDP, dist, join_seeded, mlp, nn, start_trace, torch


def main():
    job = join_seeded()
    model = DDP(mlp(8, 24, 1, nn.GELU))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 12)
    held_out = torch.randn(30, 8)
    job.register(model=model, optimizer=optimizer, schedule=schedule)
    trace = start_trace(job)

    @job.step
    def train_step(inputs):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss.item()

    @job.section
    def evaluate():
        model.eval()
        inputs = held_out[job.rank :: job.world_size]
        with torch.no_grad():
            loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
        model.train()
        dist.all_reduce(loss)
        return loss.item() / job.world_size

    history = {"loss": [], "rate": [], "evaluation": []}
    for step in job.steps(12):
        loss = train_step(torch.randn(4, 8))
        history["loss"].append(loss)
        history["rate"].append(optimizer.param_groups[0]["lr"])
        trace.line(f"step {step}", loss=loss)
        if step % 4 == 3:
            found = evaluate()
            history["evaluation"].append((step, found))
            trace.line(f"evaluation {step}", loss=found)

    if job.rank == 0 and history["loss"]:
        print(f"lowest loss {min(history['loss']):.3f} of {len(history['loss'])}")
    trace.final(model=model, optimizer=optimizer, schedule=schedule)


if __name__ == "__main__":
    main()
