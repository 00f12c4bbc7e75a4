"""Lightning with manual optimization of two optimizers in turn: the second one's gradients are reduced after the vote."""

# ranks: 2
# group: frameworks
# needs: lightning
# expect: refused US4571

import os

import lightning.pytorch as pl
from _common import nn, torch
from _trace import Trace

rank = int(os.environ["RANK"])
torch.manual_seed(0)


class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 1)

    def forward(self, inputs):
        return self.second(self.first(inputs))

    def training_step(self, batch, number):
        for optimizer in self.optimizers():
            loss = self(batch).square().mean()
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
        trace.line(f"step {number + 1}", loss=loss)

    def configure_optimizers(self):
        return [torch.optim.SGD(part.parameters(), lr=0.1) for part in (self.first, self.second)]


net = Net()
loader = torch.utils.data.DataLoader(torch.randn(64, 8), batch_size=4)
trace = Trace(rank)
options = {"enable_checkpointing": False, "enable_progress_bar": False, "logger": False}
trainer = pl.Trainer(max_epochs=1, accelerator="cpu", devices=2, strategy="ddp_find_unused_parameters_true", **options)
trainer.fit(net, loader)
trace.final(model=net)
