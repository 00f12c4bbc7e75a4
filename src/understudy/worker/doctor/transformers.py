"""Probe of Hugging Face's Trainer, where it is installed: the methods that the integration wraps, and the state that it moves."""

from __future__ import annotations

import importlib.util
import inspect

from understudy.worker.doctor.base import NotHere, Probe, expect, module
from understudy.worker.integrations.trainer import lacks

_SUMS = ("_tr_loss", "_total_loss_scalar", "_globalstep_last_logged", "current_flos", "current_gradient_accumulation_steps")
_STATE = ("global_step", "log_history", "num_input_tokens_seen", "stateful_callbacks", "is_local_process_zero", "is_world_process_zero")
_CONTROL = ("should_training_stop", "should_epoch_stop", "should_save", "should_evaluate", "should_log")


def _trainer() -> None:
    if importlib.util.find_spec("transformers") is None:
        raise NotHere("transformers is not installed")
    trainer, callbacks = module("transformers.trainer"), module("transformers.trainer_callback")
    missing = lacks(trainer.Trainer)
    expect(not missing, f"a Trainer has {missing}")
    source = inspect.getsource(trainer.Trainer)
    for name in _SUMS:
        expect(f"self.{name} = " in source, f"a Trainer keeps {name}")
    expect(set(_STATE) <= vars(callbacks.TrainerState()).keys(), f"a TrainerState has {', '.join(_STATE)}")
    expect(set(_CONTROL) <= vars(callbacks.TrainerControl()).keys(), f"a TrainerControl has {', '.join(_CONTROL)}")
    parameters = list(inspect.signature(callbacks.CallbackHandler.call_event).parameters)
    expect(parameters[:5] == ["self", "event", "args", "state", "control"], "all callbacks are called by call_event")
    expect(callable(trainer.skip_first_batches), "skip_first_batches is in transformers.trainer")
    expect(trainer.TrainOutput._fields == ("global_step", "training_loss", "metrics"), "a TrainOutput has these three fields")
    gradients = module("accelerate.state").GradientState
    expect(callable(gradients._set_sync_gradients), "a GradientState has _set_sync_gradients")


TRANSFORMERS = (
    Probe(
        "transformers",
        "the training of a Trainer is divided into steps and sections",
        ("integrations.trainer", "integrations.trainer_epochs", "integrations.trainer_state"),
        (
            *("_clip_grad_norm", "_finalize_training", "_get_grad_norm", "_get_num_items_in_batch", "_globalstep_last_logged"),
            *("_load_rng_state", "_maybe_log_save_evaluate", "_prepare_for_training", "_run_epoch", "_set_sync_gradients", "_tr_loss"),
            *("_total_loss_scalar", "_track_num_input_tokens"),
        ),
        _trainer,
        without="scripts that call Trainer.train need transformers 5.24",
    ),
)
