"""The copy that a rank hands to its buddies, and how a newcomer takes it over.

A copy contains what no replica has: the random streams, the place in the job, the position in the data with a digest of the last batch,
and those registered values and buffers in which this rank differs from the others. Until two comparisons have shown which ones differ,
all buffers and values are included. The copy also has a digest of every registered value and buffer, so that a recovery finds one that
started to differ unnoticed, instead of carrying it on silently.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import torch

from understudy.core.coverage import Replicas
from understudy.messages import registered
from understudy.worker.encoding.digests import digest, digest_bytes
from understudy.worker.encoding.messages import Boundary, BuddyCopy, CopyDigests, ScriptPosition, pack, unpack
from understudy.worker.errors import StateMismatch, UsageError
from understudy.worker.state.registry import State
from understudy.worker.state.streams import ITERATOR
from understudy.worker.state.tensors import describe, local_tensor
from understudy.worker.state.unregistered import is_emptied, is_unregistered

LIMIT = int(os.environ.get("UNDERSTUDY_LOCAL_LIMIT", 64 << 20))  # bytes of rank-local state that go with a vote at most
STREAM, POSITION = "the random stream", "the position of"
CLASSIFIED = 2  # comparisons after which it is known which values differ from rank to rank


def seal(copy: BuddyCopy) -> bytes:
    """Return the bytes to hand over, with a digest before them."""
    boundary, streams = copy.boundary, copy.streams
    if boundary is None:
        body = pack(copy)
    else:  # its streams are mostly those of the copy
        changed = {name: data for name, data in boundary.streams.items() if streams.get(name) != data}
        body = pack(copy, boundary={**vars(boundary), "streams": changed})
    return digest_bytes(body).to_bytes(8, "little") + body


def unseal(data: bytes) -> BuddyCopy:
    """Decode a sealed copy. Raises `StateMismatch` if the bytes differ from the sealed ones, `BadMessage` if they are no copy."""
    body = data[8:]
    if digest_bytes(body) != int.from_bytes(data[:8], "little"):
        raise StateMismatch(registered.COPY_CORRUPT())
    copy = unpack(BuddyCopy, body)
    if copy.boundary is not None:
        copy.boundary.streams = {**copy.streams, **copy.boundary.streams}
    return copy


class LocalState:
    """Makes the copies of this rank."""

    def __init__(self, state: State, rank: int) -> None:
        self._state = state
        self._rank = rank
        self.replicas: Replicas | None = None
        self.comparisons = 0
        self._known: tuple[object, ...] = ()  # the values on which `_is_mine` depends
        self._is_mine: dict[str, bool] = {}
        self._large = False  # values that are not known to differ are too large to hand over
        self._whole = False  # hand over even what was the same on all ranks
        self._carries = False  # the last vote's copy has gradients, too, that are not known to be shared
        self.shared = 0  # of the last copy: a digest of what all ranks have alike, as far as known
        self.sealed: dict[int, BuddyCopy] = {}  # own copies of the last two transactions
        self.versions: dict[int, list[CopyDigests]] = {}  # digests of all copies of each of them: of the vote, and of later points

    def _mine(self, entry: str) -> bool:
        """Return whether this entry has to be in the copy."""
        known = self.replicas, self.comparisons, self._large, self._whole
        if self._known != known:
            self._known, self._is_mine = known, {}
        mine = self._is_mine.get(entry)
        if mine is None:
            mine = self._is_mine[entry] = self._judge(entry)
        return mine

    def _judge(self, entry: str) -> bool:
        if self.replicas is None or entry not in self.replicas.classes:
            return True
        if (self.comparisons < CLASSIFIED or self._whole) and not self._large:
            return True
        # The vote notices when something diverges that all ranks have in common, but not when only a few share it, maybe by chance.
        if not self._large and len(set(self.replicas.classes[entry])) > 1:
            return True
        return not self.replicas.of(entry, self._rank)

    def make(
        self,
        transaction: int,
        place: ScriptPosition,
        step: int,
        boundary: Boundary | None,
        results: dict[str, bytes],
        carried: bool = False,
        after_vote: Sequence[int] = (),
        earlier: BuddyCopy | None = None,
    ) -> BuddyCopy:
        """Make the copy for a vote, or for the points `after_vote`. `carried`: the transaction leaves gradients for a later one.
        `earlier`: the copy whose streams are kept, because a newcomer draws again what was drawn since.

        Raises `UsageError` if it is too large.
        """
        closely = self.comparisons < CLASSIFIED
        values = self._values()
        every = {name: local_tensor(t) for name, t in self._state.mutable_tensors()}
        self._large = sum(t.numel() * t.element_size() for t in every.values()) + sum(map(len, values.values())) > LIMIT
        tensors = {name: t for name, t in every.items() if self._mine(name)}
        kept = self._state.kept_gradients
        if earlier is None:
            self._carries = carried or kept.live_on()
        with_gradients = self._carries or kept.matter if earlier is None else earlier.gradients
        gradients = {name: local_tensor(t) for name, t in self._state.gradients()} if with_gradients else {}
        tensors |= self._gradients_to_copy(gradients, self._carries)
        mine = {e: v for e, v in values.items() if self._mine(e)}
        size = sum(t.numel() * t.element_size() for t in tensors.values()) + sum(map(len, mine.values()))
        if size > LIMIT:
            too_large = registered.CARRIED_GRADIENTS_TOO_LARGE if carried else registered.LOCAL_STATE_TOO_LARGE
            raise UsageError(too_large(rank=self._rank, megabytes=size / 1e6, limit=LIMIT / 1e6))
        copy = BuddyCopy(
            transaction,
            place,
            step,
            self._state.randomness.capture() if earlier is None else earlier.streams,
            boundary,
            mine,
            {name: t.detach().clone() for name, t in tensors.items()},
            # Of all buffers, also of those that were the same on all ranks: from now on they may not be. Counters of changes do not help,
            # because kernels (batch_norm) write without counting.
            CopyDigests(
                {e: digest_bytes(v) for e, v in values.items()}, {name: digest(t) for name, t in (gradients | every | tensors).items()}
            ),
            results,
            list(after_vote),
            {} if earlier is None else _as_of({**earlier.values, **earlier.earlier}, mine, closely),
            _as_of(self._state.unregistered.top, mine, closely) if boundary is not None else {},
            dict(self._state.unregistered.left),
            with_gradients,
        )
        copy.unused = self._state.randomness.unused(copy.streams)
        self.shared = self._shared(copy)
        self.sealed[transaction] = copy
        self.sealed.pop(transaction - 2, None)
        before = self.versions.get(transaction, []) if after_vote else []
        self.versions[transaction] = [*before, copy.digests]
        self.versions.pop(transaction - 2, None)
        return copy

    def _values(self) -> dict[str, bytes]:
        """Return all values. In the first transactions much changes for the first time, and a newcomer has not seen yet what changes only
        before a vote.
        """
        unregistered = self._state.unregistered
        unregistered.look_at_names()
        return self._state.encoded_values(closely=self.comparisons < CLASSIFIED or unregistered.exact or len(self.sealed) < 2)

    def make_whole(self, copy: BuddyCopy, carried: bool) -> BuddyCopy:
        """Make the same copy, still as of its vote, with all values and buffers, unless that is too large: ranks that had the same now
        differ.
        """
        self._whole = True
        try:
            return self.make(copy.transaction, copy.place, copy.step, copy.boundary, copy.results, carried)
        finally:
            self._whole = False

    def adopt(self, copy: BuddyCopy) -> None:
        """Adopt, on a newcomer, the copy as its rank's own."""
        self.sealed[copy.transaction] = copy
        self.versions[copy.transaction] = [copy.digests]

    def _shared(self, copy: BuddyCopy) -> int:
        """Return a digest of 63 bits, of buffers and values that are not in the copy because all ranks have the same."""
        if self.replicas is None or self.comparisons < CLASSIFIED:
            return 0
        classes, found = self.replicas.classes, []
        for digests in (copy.digests.tensors, copy.digests.values):
            for entry, value in digests.items():
                if not self._mine(entry) and not entry.endswith("/gradient") and len(set(classes[entry])) == 1:
                    found.append(value.to_bytes(8, "little"))
        return digest_bytes(b"".join(found)) >> 1

    def _gradients_to_copy(self, gradients: dict[str, torch.Tensor], carried: bool) -> dict[str, torch.Tensor]:
        """Return the gradients that differ from rank to rank, as far as known. Gradients that are `carried` are copied as a precaution,
        unless they are too large: then a recovery relies on a survivor whose gradient had the same digest at the vote, as after an
        all-reduce."""
        if carried and sum(t.numel() * t.element_size() for t in gradients.values()) <= LIMIT:
            return gradients
        classes = self.replicas.classes if self.replicas is not None else {}
        return {name: t for name, t in gradients.items() if name in classes and self._mine(name)}

    def drawn(self, copy: BuddyCopy) -> list[str]:
        """Return the random streams that have moved since `copy` was made, by name."""
        now = self._state.randomness.capture()
        return [] if now is copy.streams else [_called(n) for n, data in now.items() if copy.streams.get(n) != data]

    def changed(self, copy: BuddyCopy, known: Mapping[str, bytes], inside: bool = False, moved: bool = False) -> list[str]:
        """Return the values and buffers, by name, that differ from rank to rank and have changed since `copy` was made. `known`: present
        values. `inside`: the transaction has changed them. `moved`: the copy is of another loop; a newcomer itself sets the
        unregistered values that the script has set again between the two."""
        if self.comparisons < CLASSIFIED:
            return []
        mine = [e for e in copy.values if self._mine(e)]  # the copy may be older than the knowledge about its entries
        values = known
        if unknown := [e for e in mine if e not in known]:
            values = {**known, **self._state.encoded_values(unknown, closely=False)}
        mine = [e for e in mine if e in values or not is_unregistered(e)]  # values that this iteration sets again are missing
        changed = [(e, copy.values[e], values.get(e)) for e in mine if values.get(e) != copy.values[e]]
        names = [e for e, before, now in changed if inside or not self._is_left(e, moved, before, now)]
        tensors = [n for n in copy.tensors if self._mine(n)]
        if not tensors:
            return names
        current = dict(self._state.mutable_tensors()) | dict(self._state.gradients())
        names += [n for n in tensors if n in current and digest(local_tensor(current[n])) != copy.digests.tensors[n]]
        return names

    def _is_left(self, entry: str, moved: bool, before: bytes, now: bytes | None) -> bool:
        """Return whether a change after the vote is ignored: the value is not registered, and is only for people, or too new to know
        whether it differs from rank to rank. A list that is cleared was filled for a reader."""
        known = self.replicas is not None and entry in self.replicas.classes
        if not is_unregistered(entry) or (known and not moved and now is not None and is_emptied(before, now)):
            return False
        return not known or moved or self._state.unregistered.leave(entry)

    def apply(self, copy: BuddyCopy, entries: set[str]) -> None:
        """Set those `entries` of the copy, on a newcomer. Streams are set where the place is reached."""
        current = dict(self._state.mutable_tensors())
        parameters = dict(self._state.parameters())
        with torch.no_grad():
            for name, tensor in copy.tensors.items():
                if name not in entries:
                    continue
                if "/gradient" not in name:
                    self._state.fit(name, describe(tensor, ""))
                    current = dict(self._state.mutable_tensors())
                    local_tensor(current[name]).copy_(tensor)
                else:
                    parameter = parameters[name.removesuffix("/gradient")]
                    if parameter.grad is None:
                        parameter.grad = torch.empty_like(parameter)
                    local_tensor(parameter.grad).copy_(tensor)
        for entry, data in copy.values.items():
            if entry in entries:
                self._state.load_value(entry, data)

    def differences(self, copy: BuddyCopy, entries: set[str]) -> list[str]:
        """Return, after `apply`, those of the `entries` that are not set as in the copy."""
        current = dict(self._state.mutable_tensors()) | dict(self._state.gradients())
        asked = {entry for entry in entries if not is_unregistered(entry)}
        values = self._state.encoded_values(asked)
        wrong = []
        for entry in sorted(asked):
            if entry in copy.digests.tensors:
                if entry not in current or digest(local_tensor(current[entry])) != copy.digests.tensors[entry]:
                    wrong.append(entry)
            elif values.get(entry) != copy.values[entry]:
                wrong.append(entry)
        return wrong


def _called(stream: str) -> str:
    return f"{POSITION} {stream}" if stream.startswith(ITERATOR) else f"{STREAM} {stream!r}"


def _as_of(known: Mapping[str, bytes], values: Mapping[str, bytes], all_known: bool) -> dict[str, bytes]:
    """Return those unregistered `values` that were different when they were `known`, as they were then.

    `all_known`: entries that are not in `known` had not changed by then; else this is unknown, and the present value is the best guess.
    """
    then = {entry: known.get(entry, b"") for entry in values if is_unregistered(entry) and (all_known or entry in known)}
    return {entry: data for entry, data in then.items() if data != values[entry]}


def kept_locally(copy: BuddyCopy, rank: int, replicas: Replicas, versions: list[CopyDigests]) -> set[str]:
    """Return the entries of a lost rank's copy that no other rank has: known to differ from rank to rank, or different at this very vote.

    `versions`: the digests of values and of tensors of each survivor, at its vote in the same transaction, at later points, and now. If
    one of them agrees, the survivor's present state is the better source, because it includes what followed.
    """
    local = {e for e in copy.values if not any(v.values.get(e) == copy.digests.values[e] for v in versions)}
    local |= {e for e in copy.tensors if not any(v.tensors.get(e) == copy.digests.tensors[e] for v in versions)}
    return local | {e for e in (*copy.values, *copy.tensors) if e in replicas.classes and not replicas.of(e, rank)}
