"""An exploration bonus counts visits in a defaultdict by tuples of a cell and an action."""

# group: state out of sight
# expect: bitwise

from collections import defaultdict

from _common import DDP, join_seeded, mlp, nn, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 24, 3, nn.Tanh))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


class Bonus:
    def __init__(self):
        self.visits = defaultdict(int)

    def of(self, observations, actions):
        cells = [(int(row[0] > 0), int(row[1] > 0)) for row in observations]
        bonuses = []
        for cell, action in zip(cells, actions.tolist(), strict=True):
            self.visits[cell, action] += 1
            bonuses.append(self.visits[cell, action] ** -0.5)
        return torch.tensor(bonuses)


bonus = Bonus()


@job.step
def train_step(observations):
    optimizer.zero_grad()
    choice = torch.distributions.Categorical(logits=model(observations))
    actions = choice.sample()
    rewards = (actions == observations[:, :3].argmax(1)).float() + bonus.of(observations, actions)
    loss = -(choice.log_prob(actions) * rewards).mean()
    loss.backward()
    optimizer.step()
    return loss.item(), rewards.sum().item()


for step in job.steps(14):
    loss, reward = train_step(torch.randn(6, 8))
    trace.line(f"step {step}", loss=loss, reward=reward)

trace.final(model=model, optimizer=optimizer)
