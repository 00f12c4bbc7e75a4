"""Lightning without a line of Understudy: `Trainer.fit` with DDP, automatic optimization, clipping, a schedule for each step."""

# ranks: 2
# group: frameworks
# needs: lightning
# expect: bitwise

import os

import lightning.pytorch as pl
from _common import nn, random_dataset, torch
from _trace import Trace

rank = int(os.environ["RANK"])
torch.manual_seed(0)
data = random_dataset(96, 8, 1)


class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 1))

    def training_step(self, batch, number):
        inputs, targets = batch
        loss = nn.functional.mse_loss(self.layers(inputs + 0.01 * torch.randn_like(inputs)), targets)
        rate = self.optimizers().param_groups[0]["lr"]
        trace.line(f"step {self.global_step + 1}", loss=loss, logged=dict(self.trainer.logged_metrics), rate=rate)
        self.log("loss", loss, on_step=True, on_epoch=True)
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=20)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


net = Net()
loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
torch.manual_seed(1 + rank)
trace = Trace(rank)
trainer = pl.Trainer(
    max_epochs=3,
    accelerator="cpu",
    devices=2,
    strategy="ddp",
    gradient_clip_val=0.5,
    enable_checkpointing=False,
    enable_progress_bar=False,
    logger=False,
)
trainer.fit(net, loader)
trace.final(model=net, optimizer=trainer.optimizers[0], metrics=dict(trainer.callback_metrics))
