"""From step 5 on a hook of the optimizer clips gradients by their norm before each of its steps."""

# group: state out of sight
# expect: told US1423 "optimizer._optimizer_step_pre_hooks[0]"

from _common import DDP, join_seeded, mlp, nn, random_dataset, sharded_loader, start_trace, torch


def clip(optimizer, args, kwargs):
    nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], 0.2)


def main():
    job = join_seeded()
    model = DDP(mlp(8, 24, 1, nn.ReLU))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loader = sharded_loader(random_dataset(192, 8, 1), 4)
    job.register(model=model, optimizer=optimizer)
    trace = start_trace(job)

    @job.step
    def train_step(step, inputs, targets):
        if step == 5:
            optimizer.register_step_pre_hook(clip)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss.item()

    for inputs, targets in job.batches(loader, steps=12):
        loss = train_step(job.committed, inputs, targets)
        trace.line(f"step {job.committed}", loss=loss)

    trace.final(model=model, optimizer=optimizer)


if __name__ == "__main__":
    main()
