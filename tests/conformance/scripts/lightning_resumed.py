"""Lightning goes on from a checkpoint of the middle of an epoch, validates, tests and saves after `fit`, and has callbacks of its own."""

# ranks: 2
# group: frameworks
# needs: lightning
# limit: 240
# expect: bitwise
# kills: forward@5:1 section vote@7:1 backward@8:0 between@11:1 evaluation@14:1 section vote@16:0

import os
import subprocess
import sys
from collections import deque
from pathlib import Path

import lightning.pytorch as pl
from _common import nn, random_dataset, torch
from _trace import Trace, digest
from lightning.pytorch.callbacks import ModelCheckpoint

first = "first" in sys.argv
rank = int(os.environ.get("RANK", "0"))
torch.manual_seed(0)
data, held_out = random_dataset(96, 8, 1), random_dataset(32, 8, 1)


class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 1))

    def training_step(self, batch, number):
        loss = nn.functional.mse_loss(self.layers(batch[0]), batch[1])
        self.log("loss", loss, on_step=True, on_epoch=True)
        return loss * (0.9 + 0.1 * self.trainer.callbacks[0].mean)

    def validation_step(self, batch, number):
        self.log("held_out", nn.functional.mse_loss(self.layers(batch[0]), batch[1]), sync_dist=True)

    def test_step(self, batch, number):
        self.log("tested", nn.functional.mse_loss(self.layers(batch[0]), batch[1]), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


class Scaling(pl.Callback):
    """The last losses, in an object that has no `state_dict`, scale the next ones."""

    def __init__(self):
        self.last, self.mean = deque(maxlen=3), 1.0

    def on_train_batch_end(self, trainer, module, outputs, batch, number):
        self.last.append(outputs["loss"].item())
        self.mean = sum(self.last) / len(self.last)
        if not first:
            trace.line(f"step {trainer.global_step - START}", mean=self.mean, logged=dict(trainer.logged_metrics))


def make_trainer(folder, **options):
    saving = ModelCheckpoint(dirpath=folder, filename="{step}", every_n_train_steps=5, save_top_k=-1)
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    return pl.Trainer(accelerator="cpu", callbacks=[Scaling(), saving], val_check_interval=3, **quiet, **options)


START = 5
net = Net()
loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
validation = torch.utils.data.DataLoader(held_out, batch_size=8)
if first:
    make_trainer(sys.argv[2], max_steps=5, devices=1).fit(net, loader, validation)
    sys.exit()
environment = {
    name: value for name, value in os.environ.items() if not name.startswith(("UNDERSTUDY", "TORCHELASTIC", "RANK", "WORLD", "LOCAL"))
}
if not Path(f"first-{rank}").exists():
    subprocess.run([sys.executable, __file__, "first", f"first-{rank}"], env=environment, check=True)
torch.manual_seed(1 + rank)
trace = Trace(rank)
trainer = make_trainer("saved", max_epochs=4, devices=2, strategy="ddp")
trainer.fit(net, loader, validation, ckpt_path=f"first-{rank}/step={START}.ckpt")
trace.line("tested", results=trainer.test(net, validation, verbose=False))
trainer.save_checkpoint("saved/end.ckpt")
files = sorted(Path("saved").iterdir())
trace.final(
    model=net,
    optimizer=trainer.optimizers[0],
    steps=trainer.global_step,
    saved={path.name: digest(torch.load(path, weights_only=False)["state_dict"]) for path in files} if rank == 0 else None,
)
