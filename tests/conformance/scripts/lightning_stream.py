"""Lightning with a stream of unknown length, gradient accumulation, two loaders at once, a data module, and a stop before the end."""

# ranks: 2
# group: frameworks
# needs: lightning
# expect: bitwise
# kills: forward@1:1 backward@2:1 evaluation@3:0 applied@5:1 vote@6:1 section vote@7:0

import os

import lightning.pytorch as pl
from _common import nn, torch
from _trace import Trace

rank = int(os.environ["RANK"])
torch.manual_seed(0)


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        for number in range(30):
            yield torch.full((8,), (2 * number + rank) / 60)


class Data(pl.LightningDataModule):
    def __init__(self):
        super().__init__()
        self.made = 0

    def train_dataloader(self):
        self.made += 1
        other = torch.utils.data.DataLoader(torch.arange(12.0), batch_size=2, shuffle=True)
        return {"stream": torch.utils.data.DataLoader(Stream(), batch_size=3), "other": other}


class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Dropout(0.1), nn.Linear(24, 1))

    def training_step(self, batch, number):
        loss = (self.layers(batch["stream"]) - batch["other"].mean()).square().mean()
        self.log("loss", loss, on_step=True, on_epoch=True, prog_bar=True)
        return loss

    def on_train_batch_end(self, outputs, batch, number):
        place = f"{self.current_epoch} {number}"
        trace.line(f"batch {place}", loss=outputs["loss"], steps=self.global_step, logged=dict(self.trainer.logged_metrics))
        self.trainer.should_stop = self.global_step >= 13

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


net = Net()
torch.manual_seed(1 + rank)
trace = Trace(rank)
trainer = pl.Trainer(
    max_epochs=10,
    accumulate_grad_batches=2,
    accelerator="cpu",
    devices=2,
    strategy="ddp",
    enable_checkpointing=False,
    logger=False,
)
trainer.fit(net, datamodule=Data())
trace.final(model=net, optimizer=trainer.optimizers[0], metrics=dict(trainer.callback_metrics), epoch=trainer.current_epoch)
