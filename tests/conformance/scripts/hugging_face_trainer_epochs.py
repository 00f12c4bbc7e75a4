"""Hugging Face Trainer without a line: evaluations and checkpoints of each epoch, a plateau schedule, an epoch left early, a stop."""

# ranks: 3
# group: frameworks
# limit: 400
# needs: transformers
# expect: bitwise
# kills: backward@2:1 evaluation@5:2 forward@6:0 vote@7:1 evaluation@8:0 between@10:2 backward@12:1 section vote@13:0

import os
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

from _common import nn, torch
from _trace import Trace
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.modeling_outputs import SequenceClassifierOutput

rank = int(os.environ["RANK"])
torch.manual_seed(0)
features, labels = torch.randn(84, 6), torch.randint(0, 3, (84,))
train_set, held_out = ([{"features": features[i], "labels": labels[i]} for i in part] for part in (range(60), range(60, 84)))
TIMES = ("runtime", "per_second")


class Model(nn.Module):
    main_input_name = "features"

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Dropout(0.1), nn.ReLU(), nn.Linear(16, 3))

    def forward(self, features, labels=None):
        logits = self.layers(features)
        return SequenceClassifierOutput(loss=nn.functional.cross_entropy(logits, labels), logits=logits)


class Leaves(TrainerCallback):
    """Leaves the second epoch early, and stops in the fourth."""

    bad = 0

    def on_step_end(self, args, state, control, **kwargs):
        trace.line(f"step {state.global_step}", epoch=state.epoch, seen=state.num_input_tokens_seen)
        self.bad += state.global_step % 3 == 0
        if state.global_step == 8:
            control.should_epoch_stop = True
        if self.bad == 5:
            control.should_training_stop = True
        return control

    def on_evaluate(self, args, state, control, metrics, **kwargs):
        trace.line(f"evaluation {state.global_step}", loss=metrics["eval_loss"], accuracy=metrics["eval_accuracy"])


def accuracy(prediction):
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


arguments = TrainingArguments(
    output_dir="saved",
    use_cpu=True,
    report_to="none",
    disable_tqdm=True,
    num_train_epochs=6,
    per_device_train_batch_size=4,
    learning_rate=1e-2,
    lr_scheduler_type="reduce_lr_on_plateau",
    metric_for_best_model="loss",
    max_grad_norm=0,
    logging_strategy="epoch",
    eval_strategy="epoch",
    save_strategy="epoch",
    include_num_input_tokens_seen="all",
    remove_unused_columns=False,
    seed=5,
)
trainer = Trainer(Model(), arguments, train_dataset=train_set, eval_dataset=held_out, compute_metrics=accuracy, callbacks=[Leaves()])
trace = Trace(rank)
trainer.train()
predicted = trainer.predict(held_out).predictions
history = [{name: value for name, value in one.items() if not any(part in name for part in TIMES)} for one in trainer.state.log_history]
saved = {str(path): torch.load(path, weights_only=True) for path in sorted(Path("saved").glob("*/*.pt"))}
trace.final(
    model=trainer.model,
    optimizer=trainer.optimizer.optimizer,
    schedule=trainer.lr_scheduler,
    history=history,
    predicted=predicted,
    state=trainer.state.global_step,
    saved=saved,
)
