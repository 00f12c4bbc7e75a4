"""A subclass of Hugging Face's Trainer: a teacher of averaged weights is an attribute of it, a queue of features one of a callback."""

# ranks: 2
# group: frameworks
# limit: 400
# needs: transformers
# expect: bitwise
# kills: forward@2:1 vote@4:0 backward@6:1 forward@9:0 evaluation@10:1

import os

os.environ["HF_HUB_OFFLINE"] = "1"

from _common import nn, torch
from _trace import Trace
from transformers import Trainer, TrainerCallback, TrainingArguments

rank = int(os.environ["RANK"])
torch.manual_seed(0)
features = torch.randn(96, 6)
train_set = [{"features": row, "labels": row.sum().reshape(1)} for row in features]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.1), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, features, labels=None):
        found = self.layers(features)
        return {"loss": nn.functional.mse_loss(found, labels), "logits": found}


class Queue:
    def __init__(self):
        self.rows = torch.zeros(8, 1)
        self.seen = 0

    def push(self, rows):
        self.rows = torch.cat([self.rows, rows])[-8:]
        self.seen += len(rows)


class Remembers(TrainerCallback):
    def __init__(self):
        self.queue = Queue()

    def on_step_end(self, args, state, control, **kwargs):
        trace.line(f"step {state.global_step}", mean=self.queue.rows.mean(), seen=self.queue.seen)


class Distills(Trainer):
    def __init__(self, *args, memory, **kwargs):
        super().__init__(*args, **kwargs)
        self.teacher = torch.optim.swa_utils.AveragedModel(self.model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
        self.memory = memory

    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        outputs = model(**inputs)
        with torch.no_grad():
            taught = self.teacher.module.layers(inputs["features"])
        loss = outputs["loss"] + 0.1 * nn.functional.mse_loss(outputs["logits"], taught) + 0.01 * self.memory.queue.rows.mean()
        if model.training:
            self.memory.queue.push(outputs["logits"].detach())
            self.teacher.update_parameters(self.model)
        return (loss, outputs) if return_outputs else loss


arguments = TrainingArguments(
    output_dir="saved",
    use_cpu=True,
    report_to="none",
    disable_tqdm=True,
    max_steps=13,
    per_device_train_batch_size=4,
    learning_rate=1e-2,
    logging_steps=2,
    eval_strategy="steps",
    eval_steps=5,
    save_strategy="no",
    seed=5,
)
memory = Remembers()
trainer = Distills(Model(), arguments, train_dataset=train_set[:80], eval_dataset=train_set[80:], memory=memory, callbacks=[memory])
trace = Trace(rank)
trainer.train()
trace.final(model=trainer.model, optimizer=trainer.optimizer.optimizer, teacher=trainer.teacher, queue=memory.queue.rows)
