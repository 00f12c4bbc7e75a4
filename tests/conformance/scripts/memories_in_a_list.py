"""Recurrence over segments: the step keeps each layer's detached memory as an item of a list in main()."""

# group: unregistered state
# expect: bitwise

from _common import DDP, join_seeded, nn, start_trace, torch

WIDTH, LAYERS, STREAMS, LENGTH = 16, 2, 3, 5


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Dropout(0.1), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x, memory):
        past = torch.cat([memory, x], 1)
        x = x + self.attention(x, past, past, need_weights=False)[0]
        return x + self.mlp(x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, memories):
        inputs = []
        for layer, memory in zip(self.layers, memories, strict=True):
            inputs.append(x)
            x = layer(x, memory)
        return self.out(x), inputs


def main():
    job = join_seeded()
    model = DDP(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    job.register(model=model, optimizer=optimizer)
    trace = start_trace(job)
    memories = [torch.zeros(STREAMS, LENGTH, WIDTH) for _ in range(LAYERS)]

    @job.step
    def train_step(segment):
        optimizer.zero_grad()
        output, inputs = model(segment, memories)
        loss = nn.functional.mse_loss(output, segment.flip(1))
        loss.backward()
        for number, hidden in enumerate(inputs):
            memories[number] = torch.cat([memories[number], hidden.detach()], 1)[:, -LENGTH:]
        optimizer.step()
        return loss.item()

    for step in job.steps(12):
        loss = train_step(torch.randn(STREAMS, LENGTH, WIDTH).cumsum(1) / 2)
        trace.line(f"step {step}", loss=loss, memories=memories)

    trace.final(model=model, optimizer=optimizer, memories=memories)


if __name__ == "__main__":
    main()
