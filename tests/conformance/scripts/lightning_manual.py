"""Lightning, imported as pytorch_lightning, with manual optimization: accumulation by hand, a schedule, data workers, a step limit."""

# ranks: 2
# group: frameworks
# needs: pytorch_lightning
# expect: bitwise

import os

import pytorch_lightning as pl
from _common import nn, torch
from _trace import Trace

rank = int(os.environ["RANK"])
torch.manual_seed(0)


class Noisy(torch.utils.data.Dataset):
    """Each sample has noise of the process that makes it."""

    def __len__(self):
        return 80

    def __getitem__(self, index):
        return torch.full((8,), index / 80) + 0.1 * torch.randn(8)


class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.layers = nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Dropout(0.1), nn.Linear(24, 1))

    def training_step(self, batch, number):
        optimizer, schedule = self.optimizers(), self.lr_schedulers()
        loss = (self.layers(batch) - batch.mean(1, keepdim=True)).square().mean()
        self.manual_backward(loss / 2)
        self.log("loss", loss, on_step=True, on_epoch=True, sync_dist=True)
        if number % 2:
            self.clip_gradients(optimizer, gradient_clip_val=0.5, gradient_clip_algorithm="norm")
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        return {"loss": loss, "number": number}

    def on_train_batch_end(self, outputs, batch, number):
        trace.line(
            f"batch {self.current_epoch} {number}", loss=outputs["loss"], step=self.global_step, logged=dict(self.trainer.logged_metrics)
        )

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)]


net = Net()
loader = torch.utils.data.DataLoader(Noisy(), batch_size=5, shuffle=True, num_workers=2)
torch.manual_seed(1 + rank)
trace = Trace(rank)
options = {"enable_checkpointing": False, "enable_progress_bar": False, "logger": False}
trainer = pl.Trainer(max_steps=14, max_epochs=-1, accelerator="cpu", devices=2, strategy="ddp", **options)
trainer.fit(net, loader)
trace.final(model=net, optimizer=trainer.optimizers[0], metrics=dict(trainer.callback_metrics))
