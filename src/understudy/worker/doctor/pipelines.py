"""Pipelines: what a first iteration sets up in schedules and stages, and what an iteration leaves when it fails."""

from __future__ import annotations

from typing import Any

from understudy.worker.doctor.base import Probe, expect, expect_signature, has, module, replaced, world

WITHOUT = "jobs with torch.distributed.pipelining cannot recover"
USED_BY = ("frameworks.pipelines",)
_AS_SET_UP = ("_stage_meta", "_inference_mode", "args_recv_info", "act_send_info", "grad_recv_info", "grad_send_info", "chunks")
_LEFT_IN_STAGE = ("fwd_cache", "bwd_cache", "output_chunks", "backward_state", "dw_runner")
_FOR_BACKWARD = ("_fwd_outputs_for_bwd_meta", "_fwd_inputs_for_bwd_meta", "_fwd_kwargs_tensors_for_bwd_meta")


def _stage(group: Any, number: int = 0, stages: int = 1) -> Any:
    torch = module("torch")
    return module("torch.distributed.pipelining").PipelineStage(torch.nn.Linear(2, 2), number, stages, torch.device("cpu"), group=group)


def _schedule(stage: Any, **options: Any) -> Any:
    loss = module("torch").nn.functional.mse_loss
    return module("torch.distributed.pipelining").ScheduleGPipe(stage, 2, loss_fn=loss, **options)


def _schedules() -> None:
    schedules, made, torch = module("torch.distributed.pipelining.schedules"), list[Any](), module("torch")
    base = schedules._PipelineSchedule
    make = base.__init__

    def noted(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        made.append(self)

    with replaced(base, "__init__", noted), world() as group:
        stage = _stage(group)
        one = _schedule(stage)
        several = schedules.ScheduleInterleaved1F1B([_stage(group)], 2, loss_fn=torch.nn.functional.mse_loss)
        expect(made == [one, several], "every schedule is made by _PipelineSchedule.__init__")
        expect(one._stage is stage and len(several._stages) == 1, "a schedule has its stage in _stage, or its stages in _stages")
        for schedule, plural in ((one, ""), (several, "s")):
            has(schedule, "_n_microbatches", "_num_stages", "_has_backward", "scale_grads", "_internal_losses")
            flags = [getattr(schedule, f"_stage{plural}_{which}_initialized") for which in ("forward", "backward")]
            expect(flags == [False, False], "the flags of a schedule show that its stages have not agreed on shapes yet")
        one.step(torch.ones(2, 2), target=torch.ones(2, 2))
        expect(one._stage_forward_initialized and one._stage_backward_initialized, "the flags are set after the first iteration")
        expect((one._n_microbatches, one._num_stages, one._has_backward) == (2, 1, True), "a schedule has its micro-batches and stages")


def _stages() -> None:
    torch = module("torch")
    with world() as group:
        stage = _stage(group)
        schedule = _schedule(stage)
        schedule.step(torch.ones(2, 2), target=torch.ones(2, 2))
        has(
            stage,
            *_AS_SET_UP,
            *_LEFT_IN_STAGE,
            *_FOR_BACKWARD,
            "stage_index_to_group_rank",
            "group_rank",
            "is_first",
            "is_last",
            "stage_index",
        )
        has(stage._stage_meta, "inputs", "outputs", "input_grads", "output_grads")
        meta = stage._stage_meta.outputs[0]
        expect(
            type(meta).__name__ == "_TensorMeta" and list(meta.shape) == [1, 2],
            "a stage has the shapes that it has agreed on in _stage_meta",
        )
        has(meta, "stride", "dtype", "requires_grad")
        expect(stage.chunks == 2, "a stage knows its micro-batches")
        stage.clear_runtime_states()
        for name in _LEFT_IN_STAGE:
            getattr(stage, name).clear()


def _adopted() -> None:
    """Try that a stage which is given shapes instead of finding them works as if it had found them."""
    torch, utils = module("torch"), module("torch.distributed.pipelining._utils")
    with world() as group:
        first = _stage(group)
        schedule = _schedule(first)
        schedule.step(torch.ones(2, 2), target=torch.ones(2, 2))
        meta = first._stage_meta
        stage = _stage(group)
        expect_signature(stage._setup_forward_recv_info, "num_microbatches", "has_backward")
        expect_signature(stage._setup_backward_recv_info, "num_microbatches")
        again = _schedule(stage)
        again._stage_forward_initialized = again._stage_backward_initialized = True
        stage._inference_mode = utils.InferenceMode[first._inference_mode.name]
        has(utils.InferenceMode, "DYNAMIC", "STATIC")
        for kind in ("inputs", "outputs", "input_grads", "output_grads"):
            metas = getattr(meta, kind)
            copied = metas and tuple(m and utils._TensorMeta(torch.Size(m.shape), tuple(m.stride), m.dtype, m.requires_grad) for m in metas)
            setattr(stage._stage_meta, kind, copied)
        stage._setup_forward_recv_info(again._n_microbatches, True)
        stage._setup_forward_send_info()
        stage._setup_backward_recv_info(again._n_microbatches)
        again.step(torch.ones(2, 2), target=torch.ones(2, 2))
        expect(all(p.grad is not None for p in stage.submod.parameters()), "a stage that was given its shapes computes gradients")


PIPELINES = (
    Probe(
        "pipeline-schedules",
        "the schedules, and whether their stages have agreed on shapes",
        USED_BY,
        (
            *("_PipelineSchedule", "_stage", "_stages", "_n_microbatches", "_num_stages", "_has_backward", "_internal_losses"),
            *("_stage_forward_initialized", "_stage_backward_initialized"),
            *("_stages_forward_initialized", "_stages_backward_initialized"),
        ),
        _schedules,
        WITHOUT,
    ),
    Probe(
        "pipeline-stages",
        "what a failed attempt has left is dropped before a redo",
        USED_BY,
        ("_stage_meta", "_inference_mode", "_TensorMeta", *_FOR_BACKWARD),
        _stages,
        WITHOUT,
    ),
    Probe(
        "pipeline-shapes",
        "a newcomer's stages are given what the others have agreed on",
        USED_BY,
        ("_utils", "_setup_forward_recv_info", "_setup_forward_send_info", "_setup_backward_recv_info"),
        _adopted,
        WITHOUT,
    ),
)
