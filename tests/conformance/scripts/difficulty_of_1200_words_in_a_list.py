"""A list has the difficulty of 1,200 words by frequency. Batches are of rare words: only numbers behind the thousandth change."""

# group: state out of sight
# expect: bitwise

from _common import DDP, dist, join_seeded, nn, start_trace, torch

WORDS = 1200


def main():
    job = join_seeded()
    model = DDP(nn.Sequential(nn.Embedding(WORDS, 12), nn.Flatten(), nn.Linear(36, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    difficulty = [1.0] * WORDS
    job.register(model=model, optimizer=optimizer)
    trace = start_trace(job)

    @job.step
    def train_step(words, labels):
        optimizer.zero_grad()
        weights = torch.tensor([sum(difficulty[word] for word in line) / 3 for line in words.tolist()])
        losses = nn.functional.cross_entropy(model(words), labels, reduction="none")
        sums = torch.zeros(WORDS).index_add(0, words.flatten(), losses.detach().repeat_interleave(3))
        dist.all_reduce(sums)
        for word in sums.nonzero().flatten().tolist():
            difficulty[word] = 0.5 * difficulty[word] + 0.5 * sums[word].item()
        loss = (weights * losses).mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    for step in job.steps(14):
        loss = train_step(torch.randint(WORDS - 40, WORDS, (4, 3)), torch.randint(4, (4,)))
        trace.line(f"step {step}", loss=loss)

    trace.final(model=model, optimizer=optimizer)


if __name__ == "__main__":
    main()
