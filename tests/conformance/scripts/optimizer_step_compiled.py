"""optimizer.step is compiled together with the vote before it, which cannot be compiled: the backend rejects what is not torch."""

# group: reported by users
# expect: bitwise

from _common import DDP, join_seeded, mlp, nn, start_trace, torch


def backend(graph, inputs):
    for node in graph.graph.nodes:
        if "understudy" in (node.stack_trace or ""):
            raise RuntimeError(f"this is not the optimizer's: {node.stack_trace}")
    return graph.forward


job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
compiled = torch.compile(optimizer.step, backend=backend)


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    compiled()
    return loss.item()


for step in job.steps(12):
    loss = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
