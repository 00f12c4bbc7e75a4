"""Messages about training frameworks whose objects are registered whole."""

from __future__ import annotations

from understudy.messages.base import Message

ACCELERATE_KIND = Message(
    "US1231",
    "this Accelerator trains in the way {kind}, which Understudy does not support: it supports DDP, FSDP2 and a single process",
    cause="DeepSpeed, Megatron and XLA control the step and its collectives, and keep no replicas of the state that a lost rank held.",
    remedy="Use DDP, or FSDP with fsdp_version=2 and ParallelismConfig(dp_replicate_size=2) so that each shard has a replica.",
)
ACCELERATOR_NOT_REGISTERED = Message(
    "US1232",
    "job.batches was given a loader that Accelerate has prepared, and its Accelerator is not registered: call "
    "job.register(accelerator=accelerator) after the last accelerator.prepare(...)",
    cause="Such a loader broadcasts the state of its generator whenever it is iterated over. If the Accelerator is registered, this "
    "happens only once.",
    remedy="Register the Accelerator after everything is prepared. It registers the model, the optimizer and the schedule, too.",
)
DISPATCHED = Message(
    "US1233",
    "Accelerate has prepared a loader as {type}: rank 0 draws each batch and sends it to the others, outside of any transaction. Pass "
    "DataLoaderConfiguration(dispatch_batches=False) to the Accelerator",
    cause="With dispatch_batches=True, and by default for an iterable dataset, drawing a batch is a collective.",
    remedy="Pass dispatch_batches=False. Each rank then draws its own share of the dataset.",
)
RNG_TYPES = Message(
    "US1234",
    "the Accelerator synchronizes the random streams {kinds} at the beginning of each epoch, outside of any transaction: leave rng_types "
    "at its default",
    cause="Accelerator(rng_types=...) names more than 'generator', the default.",
    remedy="Remove rng_types from the Accelerator, and seed all ranks with accelerate.utils.set_seed.",
)
TRAINER_CHANGED = Message(
    "US1251",
    "transformers {version} has no Trainer.{name} with the parameters that Understudy relies on: use a version of transformers that "
    "docs/script/frameworks.md lists, or write the loop with Accelerate",
    cause="Understudy wraps methods of the Trainer, most of them private, and this version has others.",
    remedy="Install one of the versions that are listed, and report this.",
)
TRAINER_ARGUMENT = Message(
    "US1252",
    "this Trainer is used with {name}, which Understudy does not support",
    cause="It changes the training in a way that a redo or a newcomer could not repeat.",
    remedy="Leave it out, or write the loop with Accelerate.",
)
TRAINED_TWICE = Message(
    "US1253",
    "Trainer.train is called a second time: Understudy supports one training for each job",
    cause="Each training makes a new optimizer, and state is registered before the first step only.",
    remedy="Run the second training as a job of its own, which begins with the saved model of the first.",
)
TRAINED_AFTER_A_LOOP = Message(
    "US1254",
    "Trainer.train is called after a loop of the job (job.batches, job.steps or job.lead)",
    cause="A newcomer finds the epoch that the job has reached by the number of its loop.",
    remedy="Run the loop as a job of its own.",
)
LIGHTNING_CHANGED = Message(
    "US1235",
    "Lightning {version} has no {name}, or another one than the versions that Understudy knows: this Trainer cannot be protected",
    cause="The integration wraps methods of Lightning that are not public. In this version one of them is missing or has other parameters.",
    remedy="Install a version of Lightning that the documentation names, or run without protection: understudy run --integration none.",
)
LIGHTNING_STRATEGY = Message(
    "US1236",
    "this Trainer uses the strategy {strategy}, which Understudy does not support: it supports DDPStrategy",
    cause="Other strategies shard the state, so that a lost rank has no replica, or control the step themselves.",
    remedy="Pass strategy='ddp' to the Trainer, or run without protection: understudy run --integration none.",
)
LIGHTNING_FEATURE = Message(
    "US1237",
    "this Trainer uses {feature}, which Understudy does not support",
    cause="The feature changes the loops of the Trainer, or keeps state, in a way that a newcomer could not repeat.",
    remedy="Remove it from the script, or run without protection: understudy run --integration none.",
)
LIGHTNING_SYNC_GROUP = Message(
    "US1238",
    "self.log({name!r}, ...) has a sync_dist_group, which Understudy does not support",
    cause="A newcomer makes the entries of logged values from their description, and a process group has none.",
    remedy="Use sync_dist=True without sync_dist_group, or reduce the value in training_step.",
)
EPOCH_LEFT = Message(
    "US1239",
    "an epoch of Trainer.fit was left before its last batch, and another one follows, which Understudy does not support",
    cause="on_train_batch_start returned -1, or the Trainer continued after a stop. A newcomer could not know that the epoch is over.",
    remedy="Do not return -1 from on_train_batch_start; limit_train_batches and max_steps are supported.",
)
SECOND_FIT = Message(
    "US1240",
    "Trainer.fit was called twice: Understudy supports one call for each job",
    cause="State is registered before the first step, and the second call makes new optimizers and a new DDP module.",
    remedy="Train in one call of fit, or in two jobs: the second one loads the checkpoint of the first.",
)
