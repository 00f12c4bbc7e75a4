"""Strings are shared by torch's default store (set, get, add, wait), in the set-up, in each step and in a section."""

# group: reported by users
# expect: refused US1002 "default_store_as_barrier.py:9"

from _common import DDP, dist, join_seeded, mlp, nn, random_dataset, sharded_loader, start_trace, torch

job = join_seeded()
store = dist.distributed_c10d._get_default_store()
if job.rank == 0:
    store.set("name of the run", "blue whale")
name = store.get("name of the run").decode()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = random_dataset(96, 8, 1)
loader = sharded_loader(data, 4)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


def everyone_is_here(key):
    if store.add(f"{key} arrived", 1) == job.world_size:
        store.set(f"{key} open", "1")
    store.wait([f"{key} open"])


@job.step
def train_step(batch, number):
    inputs, targets = batch
    everyone_is_here(f"step {number}")
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


@job.section
def share(number):
    if job.rank == number % job.world_size:
        store.set(f"word {number}", f"{name} {number}")
    return store.get(f"word {number}").decode()


for batch in job.batches(loader, steps=12):
    number = job.committed
    loss = train_step(batch, number)
    word = share(number)
    trace.line(f"step {job.committed}", loss=loss, word=word)

trace.final(model=model, optimizer=optimizer)
