"""A sparse tensor gathers which items came together, and smooths the embeddings along these edges."""

# group: state out of sight
# expect: told US1423 "edges.indices"

from _common import DDP, join_seeded, nn, start_trace, torch

ITEMS = 20


class Smoothed(nn.Module):
    def __init__(self):
        super().__init__()
        self.items = nn.Parameter(torch.randn(ITEMS, 8))
        self.out = nn.Linear(8, 1)

    def forward(self, edges, pairs):
        smooth = self.items + 0.1 * torch.sparse.mm(edges, self.items)
        return self.out(smooth[pairs].prod(1))


job = join_seeded()
model = DDP(Smoothed())
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
edges = torch.sparse_coo_tensor(torch.zeros(2, 0, dtype=torch.long), torch.zeros(0), (ITEMS, ITEMS))
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(pairs, targets):
    global edges
    new = torch.sparse_coo_tensor(pairs.t(), torch.ones(len(pairs)), (ITEMS, ITEMS))
    edges = (0.9 * edges + new).coalesce()
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(edges, pairs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(14):
    loss = train_step(torch.randint(ITEMS, (6, 2)), torch.randn(6, 1))
    trace.line(f"step {step}", loss=loss, edges=edges._nnz())

trace.final(model=model, optimizer=optimizer)
