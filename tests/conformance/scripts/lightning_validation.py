"""Lightning with validations, checkpoints, early stopping, a plateau schedule, metrics, a log in CSV, and a callback that counts."""

# ranks: 2
# group: frameworks
# needs: lightning torchmetrics
# expect: bitwise
# kills: backward@0:1 forward@2:1 section vote@3:1 evaluation@6:0 applied@7:1 section vote@9:0 between@10:1 section vote passed@13:1

import os
from pathlib import Path

import lightning.pytorch as pl
from _common import nn, random_dataset, torch
from _trace import Trace, digest
from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torchmetrics import MeanMetric

rank = int(os.environ["RANK"])
torch.manual_seed(0)
data, held_out = random_dataset(96, 8, 1), random_dataset(32, 8, 1)


class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 1))
        self.mean = MeanMetric()
        self.validations = 0

    def training_step(self, batch, number):
        inputs, targets = batch
        loss = nn.functional.mse_loss(self.layers(inputs + 0.01 * torch.randn_like(inputs)), targets)
        self.mean(loss)
        self.log("loss", loss, on_step=True, on_epoch=True)
        self.log("mean", self.mean, on_epoch=True, on_step=False)
        return {"loss": loss, "size": len(inputs)}

    def validation_step(self, batch, number):
        loss = nn.functional.mse_loss(self.layers(batch[0]), batch[1])
        self.log("held_out", loss, sync_dist=True)
        self.log("own", loss * torch.rand(()))

    def on_validation_epoch_end(self):
        self.validations += 1
        self.log("validations", float(self.validations))

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)
        schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "monitor": "held_out"}}


class Counting(pl.Callback):
    def __init__(self):
        self.losses, self.sizes, self.best = [], 0, None

    def on_train_batch_end(self, trainer, module, outputs, batch, number):
        self.losses.append(outputs["loss"].item())
        self.sizes += outputs["size"]
        rate = trainer.optimizers[0].param_groups[0]["lr"]
        trace.line(f"step {trainer.global_step}", losses=self.losses, sizes=self.sizes, logged=dict(trainer.logged_metrics), rate=rate)

    def on_validation_end(self, trainer, module):
        if not trainer.sanity_checking:
            score = trainer.callback_metrics["held_out"]
            self.best = score if self.best is None else torch.minimum(self.best, score)
            trace.line(f"validation {module.validations}", best=self.best, metrics=dict(trainer.callback_metrics))


def without_folder(thing):
    """Removes the folder of this run from names of files."""
    if isinstance(thing, dict):
        return {without_folder(key): without_folder(value) for key, value in thing.items()}
    if isinstance(thing, list | tuple):
        return [without_folder(item) for item in thing]
    return thing.replace(f"{Path.cwd()}/", "") if isinstance(thing, str) else thing


def saved():
    """Returns what is in the folder of the run."""
    files = sorted(path for path in Path("saved").rglob("*") if path.is_file())
    contents = {str(path): digest(without_folder(torch.load(path, weights_only=False))) for path in files if path.suffix == ".ckpt"}
    rows = {str(path): sorted(set(path.read_text().splitlines())) for path in files if path.suffix == ".csv"}
    return {"files": [str(path) for path in files], **contents, **rows}


net = Net()
loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
checkpoints = [
    ModelCheckpoint(dirpath="saved", filename="best-{epoch}-{step}", monitor="held_out", save_top_k=2, save_last=True),
    ModelCheckpoint(dirpath="saved/often", filename="newest", every_n_train_steps=4),
]
torch.manual_seed(1 + rank)
trace = Trace(rank)
trainer = pl.Trainer(
    max_epochs=4,
    val_check_interval=0.5,
    accelerator="cpu",
    devices=2,
    strategy="ddp",
    callbacks=[Counting(), EarlyStopping("held_out", patience=30), LearningRateMonitor(), *checkpoints],
    enable_progress_bar=False,
    logger=CSVLogger("saved/logs"),
    log_every_n_steps=2,
)
trainer.fit(net, loader, torch.utils.data.DataLoader(held_out, batch_size=8))
trace.final(
    model=net,
    optimizer=trainer.optimizers[0],
    schedule=trainer.lr_scheduler_configs[0].scheduler,
    metrics=dict(trainer.callback_metrics),
    best=without_folder(checkpoints[0].state_dict()),
    saved=saved() if rank == 0 else None,
)
