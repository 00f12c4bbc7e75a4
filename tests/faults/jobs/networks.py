"""The ways to be parallel that the fault tests train with, behind one small interface.

The model is tiny, and has on purpose what makes recovery hard: dropout, a BatchNorm whose buffers differ from rank to
rank, gradients accumulated over two halves of a batch, and several gradient collectives in a backward.
"""

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import _functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

WIDTH, HIDDEN = 32, 64


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDTH)
        self.first = nn.Linear(WIDTH, HIDDEN)
        self.drop = nn.Dropout(0.1)
        self.second = nn.Linear(HIDDEN, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.drop(torch.relu(self.first(self.norm(x))))
        result: Tensor = self.drop(self.second(hidden))
        return result


class Parallel:
    """One rank's part. `data_rank`, `data_size`: which share of the data it trains on."""

    def __init__(self, rank: int, world_size: int) -> None:
        self.rank, self.world_size = rank, world_size
        self.data_rank, self.data_size = rank, world_size
        self.model: nn.Module

    def hold_back(self, held: bool) -> None:
        """Whether the next backward leaves its gradients on this rank."""

    def reduce(self) -> None:
        """What is left to do for the gradients after the last backward."""

    def clip(self) -> None:
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)

    def reshard(self) -> None:
        """Parameters are this rank's shards afterwards."""


class DataParallel(Parallel):
    broadcast_buffers = False

    def __init__(self, rank: int, world_size: int) -> None:
        super().__init__(rank, world_size)
        self._wrapped = DistributedDataParallel(Network(), broadcast_buffers=self.broadcast_buffers, bucket_cap_mb=0.005)
        self._wrapped.register_comm_hook(None, self._average)
        self.model = self._wrapped

    def _average(self, state: object, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:  # type: ignore[name-defined]
        work = dist.all_reduce(bucket.buffer().div_(self.world_size), async_op=True)
        assert work is not None
        future: torch.futures.Future[Tensor] = work.get_future().then(lambda done: done.value()[0])
        return future

    def hold_back(self, held: bool) -> None:
        self._wrapped.require_backward_grad_sync = not held


class BuffersOfOneRank(DataParallel):
    """Each forward begins with a broadcast of rank 0's buffers."""

    broadcast_buffers = True


class Sharded(Parallel):
    """Shards over pairs of ranks, two replicas of each shard: ranks 0 and 2, 1 and 3."""

    def __init__(self, rank: int, world_size: int) -> None:
        super().__init__(rank, world_size)
        mesh = init_device_mesh("cpu", (2, world_size // 2), mesh_dim_names=("replicate", "shard"))
        network = Network()
        for part in (network.first, network.second):
            fully_shard(part, mesh=mesh)
        self._sharded = fully_shard(network, mesh=mesh)
        self.model = network

    def hold_back(self, held: bool) -> None:
        self._sharded.set_requires_gradient_sync(not held)

    def reshard(self) -> None:
        for part in self.model.modules():
            if isinstance(part, FSDPModule):
                part.reshard()


class TensorParallel(Parallel):
    """Every matrix over pairs of ranks, two replicas of each half, whose gradients are averaged here."""

    def __init__(self, rank: int, world_size: int) -> None:
        super().__init__(rank, world_size)
        mesh = init_device_mesh("cpu", (2, world_size // 2), mesh_dim_names=("data", "tensor"))
        self.data_rank, self.data_size = mesh.get_local_rank("data"), 2
        self._replicas = mesh.get_group("data")
        self.model = parallelize_module(Network(), mesh["tensor"], {"first": ColwiseParallel(), "second": RowwiseParallel()})

    def reduce(self) -> None:
        for parameter in self.model.parameters():
            gradient = parameter.grad
            if isinstance(gradient, DTensor):
                local = gradient._local_tensor
                local.copy_(functional.all_reduce(local, "sum", self._replicas) / self.data_size)
            elif gradient is not None:
                dist.all_reduce(gradient, group=self._replicas)
                gradient /= self.data_size

    def clip(self) -> None:
        split = [p for p in self.model.parameters() if isinstance(p, DTensor)]
        whole = [p for p in self.model.parameters() if not isinstance(p, DTensor)]
        nn.utils.clip_grad_norm_(split, 1.0)
        nn.utils.clip_grad_norm_(whole, 1.0)


MODES: dict[str, type[Parallel]] = {"ddp": DataParallel, "buffers": BuffersOfOneRank, "hsdp": Sharded, "tp": TensorParallel}
