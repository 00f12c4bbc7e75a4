"""A pruner's masks are exchanged by mask.data for the first time in step 7, and once more in step 9: half of what is left is masked."""

# group: state out of sight
# expect: bitwise

from _common import DDP, join_seeded, nn, start_trace, torch


class Pruner:
    def __init__(self, layers):
        self.layers = layers
        self.masks = [torch.ones_like(layer.weight) for layer in layers]

    @torch.no_grad()
    def prune(self, share):
        for layer, mask in zip(self.layers, self.masks, strict=True):
            left = layer.weight[mask > 0].abs()
            limit = left.quantile(share)
            mask.data = mask * (layer.weight.abs() > limit)

    @torch.no_grad()
    def apply(self):
        for layer, mask in zip(self.layers, self.masks, strict=True):
            layer.weight.grad *= mask


def main():
    job = join_seeded()
    net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    job.register(model=model, optimizer=optimizer)
    trace = start_trace(job)
    pruner = Pruner([layer for layer in net if isinstance(layer, nn.Linear)])

    @job.step
    def train_step(step, inputs):
        if step in (7, 9):
            pruner.prune(0.5)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
        loss.backward()
        pruner.apply()
        optimizer.step()
        return loss.item(), sum(mask.sum().item() for mask in pruner.masks)

    for step in job.steps(14):
        loss, left = train_step(step, torch.randn(4, 8))
        trace.line(f"step {step}", loss=loss, left=left)

    trace.final(model=model, optimizer=optimizer, masks=pruner.masks)


if __name__ == "__main__":
    main()
