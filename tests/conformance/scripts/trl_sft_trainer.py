"""TRL's SFTTrainer, a subclass of Hugging Face's Trainer with metrics of its own: packed text, an evaluation, a checkpoint, a callback."""

# ranks: 2
# group: frameworks
# limit: 400
# needs: transformers trl
# expect: bitwise
# kills: backward@1:1 evaluation@4:0 vote@5:1 forward@7:0 applied@8:1 evaluation@8:0

import os
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

from _common import join_seeded, start_trace, torch
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, TrainerCallback
from trl import SFTConfig, SFTTrainer

job = join_seeded()
trace = start_trace(job)
words = ["<pad>", "<eos>", "<unk>", *(f"word{number}" for number in range(13))]
plain = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
plain.pre_tokenizer = Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
chosen = torch.randint(3, 16, (84, 10), generator=torch.Generator().manual_seed(3)).tolist()
texts = [" ".join(words[index] for index in row) for row in chosen]
train_set, held_out = (Dataset.from_dict({"text": part}) for part in (texts[:72], texts[72:]))
model = LlamaForCausalLM(
    LlamaConfig(vocab_size=len(plain.get_vocab()), hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2)
)
TIMES = ("runtime", "per_second")


class Lines(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        trace.line(f"step {state.global_step}", epoch=state.epoch, tokens=state.num_input_tokens_seen)


arguments = SFTConfig(
    output_dir="saved",
    use_cpu=True,
    bf16=False,
    report_to="none",
    disable_tqdm=True,
    num_train_epochs=2,
    per_device_train_batch_size=3,
    gradient_accumulation_steps=2,
    gradient_checkpointing=False,
    max_length=12,
    learning_rate=1e-2,
    logging_steps=2,
    eval_strategy="steps",
    eval_steps=4,
    save_strategy="steps",
    save_steps=4,
    seed=5,
)
trainer = SFTTrainer(model, arguments, train_dataset=train_set, eval_dataset=held_out, processing_class=tokenizer, callbacks=[Lines()])
job.register(trainer=trainer)
trainer.train()
history = [{name: value for name, value in one.items() if not any(part in name for part in TIMES)} for one in trainer.state.log_history]
saved = {str(path): torch.load(path, weights_only=True) for path in sorted(Path("saved").glob("*/*.pt"))}
trace.final(model=trainer.model, optimizer=trainer.optimizer.optimizer, history=history, saved=saved)
