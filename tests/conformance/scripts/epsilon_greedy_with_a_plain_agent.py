"""As in DQN: an agent object holds epsilon, its replay memory and the environment's state; the step plays and learns."""

# group: unregistered state
# expect: bitwise

import random
from collections import deque

from _common import DDP, join_seeded, nn, start_trace, torch

ACTIONS = 3


class Agent:
    def __init__(self, network):
        self.network = network
        self.epsilon = 1.0
        self.memory = deque(maxlen=24)
        self.observation = torch.zeros(4)

    @torch.no_grad()
    def play(self):
        action = self.network(self.observation).argmax().item()
        if random.random() < self.epsilon:
            action = random.randrange(ACTIONS)
        following = 0.7 * self.observation + 0.3 * torch.randn(4)
        following[action] += 0.5
        reward = -following.square().sum().item()
        self.memory.append((self.observation, action, reward, following))
        self.observation = following
        self.epsilon = max(0.05, 0.85 * self.epsilon)

    def sample(self, size):
        chosen = random.choices(self.memory, k=size)
        observations, actions, rewards, following = zip(*chosen, strict=True)
        return torch.stack(observations), torch.tensor(actions), torch.tensor(rewards), torch.stack(following)


job = join_seeded()
network = nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, ACTIONS))
target = nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, ACTIONS)).requires_grad_(False)
target.load_state_dict(network.state_dict())
model = DDP(network)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
job.register(model=model, target=target, optimizer=optimizer)
trace = start_trace(job)
agent = Agent(network)


@job.step
def train_step(step):
    for _ in range(2):
        agent.play()
    observations, actions, rewards, following = agent.sample(6)
    wanted = rewards + 0.9 * target(following).amax(1)
    optimizer.zero_grad()
    values = model(observations).gather(1, actions[:, None])[:, 0]
    loss = nn.functional.smooth_l1_loss(values, wanted)
    loss.backward()
    optimizer.step()
    if step % 4 == 3:
        target.load_state_dict(network.state_dict())
    return loss.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss, epsilon=agent.epsilon, seen=len(agent.memory))

trace.final(model=model, target=target, optimizer=optimizer, epsilon=agent.epsilon, observation=agent.observation)
