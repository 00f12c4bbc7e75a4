"""Truncated backpropagation: the hidden state is a plain attribute of the model, carried from each step to the next."""

# group: state
# expect: bitwise

from _common import DDP, join_seeded, nn, start_trace, torch

VOCABULARY, WIDTH, STREAMS, LENGTH = 20, 24, 4, 6


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH, batch_first=True)
        self.drop = nn.Dropout(0.1)
        self.out = nn.Linear(WIDTH, VOCABULARY)
        self.hidden = None

    def forward(self, tokens):
        output, hidden = self.lstm(self.drop(self.embedding(tokens)), self.hidden)
        self.hidden = tuple(h.detach() for h in hidden)
        return self.out(output)


job = join_seeded()
model = DDP(Recurrent())
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
text = torch.randint(VOCABULARY, (job.world_size, STREAMS, 12 * LENGTH + 1))[job.rank]
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(number):
    window = text[:, number * LENGTH : (number + 1) * LENGTH + 1]
    optimizer.zero_grad()
    logits = model(window[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten())
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    optimizer.step()
    return loss.item()


for number in job.steps(12):
    loss = train_step(number)
    trace.line(f"step {number}", loss=loss, hidden=model.module.hidden)

trace.final(model=model, optimizer=optimizer, hidden=list(model.module.hidden))
