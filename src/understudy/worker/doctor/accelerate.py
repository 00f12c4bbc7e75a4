"""Probes of Accelerate, where it is installed."""

from __future__ import annotations

from understudy.worker.doctor.base import NotHere, Probe, expect, module


def _accelerator() -> None:
    try:
        accelerate = module("accelerate")
    except ImportError as error:
        raise NotHere("accelerate is not installed") from error
    data, states, loaders = module("torch.utils.data"), module("accelerate.state"), module("accelerate.data_loader")
    torch = module("torch")
    random = torch.get_rng_state()
    try:
        made = accelerate.Accelerator(cpu=True)
        model = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.ConstantLR(optimizer)
        drawn: list[int] = []
        plain = data.DataLoader(range(6), batch_size=2, shuffle=True, collate_fn=drawn.append)
        _, _, loader, _ = made.prepare(model, optimizer, plain, schedule)
        expect(made._models == [model] and made._custom_objects == [], "_models and _custom_objects are what was prepared or registered")
        expect([one.optimizer for one in made._optimizers] == [optimizer], "_optimizers are wrappers with the attribute optimizer")
        expect([one.scheduler for one in made._schedulers] == [schedule], "_schedulers are wrappers with the attribute scheduler")
        expect(made._dataloaders == [loader] and type(loader) is loaders.DataLoaderShard, "_dataloaders are DataLoaderShards")
        expect(issubclass(loaders.DataLoaderShard, loaders.DataLoaderAdapter), "a DataLoaderShard is a DataLoaderAdapter")
        expect(callable(loaders.synchronize_rng_states), "synchronize_rng_states is in accelerate.data_loader")
        expect({"rng_types", "synchronized_generator"} <= vars(loader).keys(), "a loader has rng_types and synchronized_generator")
        expect(loader.iteration == 0, "a loader counts its epochs as iteration")
        loader.rng_types = None
        iterator = iter(loader)
        next(iterator)
        expect(len(drawn) == 2, "a loader is one batch ahead")
        gradients = made.gradient_state
        expect(gradients.dataloader_references == [None, loader], "dataloader_references are the loaders in use")
        expect((made.step, gradients.sync_gradients) == (0, True), "step and sync_gradients are the position in an accumulation")
        list(iterator)
        expect(loader.iteration == 1, "iteration is 1 after the first epoch")
        expect(made.project_configuration.iteration == 0, "project_configuration.iteration is the number of the next checkpoint")
        expect("initial_seed" in vars(loaders.SeedableRandomSampler(range(2), data_seed=1)), "a SeedableRandomSampler has initial_seed")
    finally:
        for shared in (states.AcceleratorState, states.GradientState, states.PartialState):
            shared._reset_state()
        torch.set_rng_state(random)


ACCELERATE = (
    Probe(
        "accelerate",
        "an Accelerator is registered whole, and its loaders continue at the job's position",
        ("integrations.accelerate",),
        ("_custom_objects", "_dataloaders", "_models", "_optimizers", "_schedulers"),
        _accelerator,
        without="scripts that register an Accelerator need accelerate 1.15",
    ),
)
