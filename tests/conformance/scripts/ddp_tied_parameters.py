"""A small language model whose output layer shares its weight with the embedding."""

# group: ddp
# expect: bitwise

from _common import DDP, join_seeded, nn, start_trace, torch

VOCABULARY, WIDTH, LENGTH = 40, 16, 10


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Parameter(torch.zeros(LENGTH, WIDTH))
        self.block = nn.TransformerEncoderLayer(WIDTH, 2, 32, dropout=0.1, batch_first=True, norm_first=True)
        self.out = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.out.weight = self.tokens.weight
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH), persistent=False)

    def forward(self, tokens):
        hidden = self.block(self.tokens(tokens) + self.places, src_mask=self.mask, is_causal=True)
        return self.out(hidden)


job = join_seeded()
model = DDP(LanguageModel(), bucket_cap_mb=0.002)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
text = torch.randint(VOCABULARY, (500,))
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step():
    starts = torch.randint(len(text) - LENGTH - 1, (4, 1))
    window = text[starts + torch.arange(LENGTH + 1)]
    optimizer.zero_grad()
    logits = model(window[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    return loss.item()


for _ in job.steps(12):
    loss = train_step()
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)
