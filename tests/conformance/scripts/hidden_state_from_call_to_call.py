"""Truncated backpropagation as in tutorials: main() passes the detached hidden state into each step and gets the next one."""

# group: unregistered state
# expect: told US4586 "carried"

from _common import DDP, join_seeded, nn, start_trace, torch

VOCABULARY, WIDTH, STREAMS, LENGTH = 20, 24, 4, 6


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.rnn = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.out = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens, hidden):
        output, hidden = self.rnn(self.embedding(tokens), hidden)
        return self.out(output), hidden


def main():
    job = join_seeded()
    model = DDP(Recurrent())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    text = torch.randint(VOCABULARY, (job.world_size, STREAMS, 12 * LENGTH + 1))[job.rank]
    job.register(model=model, optimizer=optimizer)
    trace = start_trace(job)

    @job.step
    def train_step(tokens, targets, hidden):
        optimizer.zero_grad()
        logits, hidden = model(tokens, hidden)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        return loss.item(), hidden.detach()

    carried = torch.zeros(1, STREAMS, WIDTH)
    for number in job.steps(12):
        place = number * LENGTH
        loss, carried = train_step(text[:, place : place + LENGTH], text[:, place + 1 : place + LENGTH + 1], carried)
        trace.line(f"step {number}", loss=loss, hidden=carried)

    trace.final(model=model, optimizer=optimizer)


if __name__ == "__main__":
    main()
