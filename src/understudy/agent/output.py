"""Workers' stdout and stderr: prefixed on the terminal, kept unprefixed for each worker in the run directory.

Reading happens on the event loop, writing on two threads (`writers`). When more than `HIGH` bytes wait to be written, the workers' pipes
are not read, so that a fast printer waits for the disk as it would with any launcher; but for at most `STALL` seconds. After that output is
dropped, and a line reports how much, until the writer is empty again: a terminal stopped with Ctrl-S or a hanging file system must not
stop the training.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from understudy.agent.lines import Lines, printable
from understudy.agent.writers import LogFiles, Terminal, Writer
from understudy.common.bounds import plain
from understudy.messages import agents

HIGH = 4 << 20  # bytes that may wait for one writer
LOW = 1 << 20
STALL = 1.0
TICK = 1.0
_PIPE = 1 << 20


@dataclass
class Route:
    """The destination of a worker's output; it changes when the worker takes a rank."""

    prefix: str
    shown: dict[str, bool] = field(default_factory=lambda: {"stdout": True, "stderr": True})
    also: dict[str, str] = field(default_factory=dict)  # stream -> one more file


class Output:
    """Owns the pipes given to `attach`, and both writers."""

    def __init__(self, folder: Path, stream: Callable[[str], None] | None = None) -> None:
        """Create the output. `stream` takes the prefixed lines instead of the terminal; it is called on a writer's thread."""
        self._folder = folder
        self._loop = asyncio.get_running_loop()
        self._streams: dict[int, _Stream] = {}
        self._paused = False
        self._stalled: asyncio.TimerHandle | None = None
        self._closed = False
        show = Terminal().write if stream is None else lambda _, data: stream(data.decode(errors="replace"))
        self._terminal = _Way("the terminal", Writer("terminal", show, self._wake))
        logs = LogFiles(self._failed)
        self._files = _Way("the log files", Writer("logs", logs.write, self._wake, logs.finish))
        self._ways = (self._terminal, self._files)
        self._ticking = self._loop.call_later(TICK, self._tick)

    def say(self, text: str) -> None:
        """Print a line of the agent itself."""
        self._terminal.put("stderr", f"understudy: {plain(text)}\n".encode())

    def attach(self, worker: str, route: Route, stdout: int, stderr: int) -> None:
        log = str(self._folder / f"{worker}.log")
        self._files.put(log, b"")  # the file exists from the start, even for a worker that never prints
        for name, fd in (("stdout", stdout), ("stderr", stderr)):
            os.set_blocking(fd, False)
            with contextlib.suppress(OSError):  # over the user's limit for pipes
                fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE)
            self._streams[fd] = _Stream(worker, name, fd, route, log)
            if not self._paused:
                self._loop.add_reader(fd, self._read, self._streams[fd])

    def printed(self, worker: str, data: bytes, *, shown: bool) -> None:
        """Handle `data` as if `worker` had printed it on its stderr. `shown`: on the terminal, too."""
        for stream in self._streams.values():
            if (stream.worker, stream.name) == (worker, "stderr") and data:
                self._files.put(stream.log, data)
                if (also := stream.route.also.get("stderr")) is not None:
                    self._files.put(also, data)
                if shown:
                    self._show(stream, data.splitlines())

    async def drain(self, worker: str | None, patience: float) -> None:
        """Read to the end of the ended worker's streams, or of all. A stray that keeps them open is not waited for."""
        streams = [s for s in self._streams.values() if worker in (None, s.worker)]
        if streams:
            await asyncio.wait([s.ended for s in streams], timeout=patience)
        for stream in streams:
            self._end(stream)

    async def close(self, patience: float) -> None:
        self._closed = True
        self._ticking.cancel()
        if self._stalled:
            self._stalled.cancel()
        for stream in list(self._streams.values()):
            self._end(stream)
        for way in self._ways:
            self._tell_dropped(way)
        await asyncio.gather(*(asyncio.to_thread(way.writer.close, patience) for way in self._ways))

    def _read(self, stream: _Stream) -> None:
        try:
            data = os.read(stream.fd, 1 << 16)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self._end(stream)
            return
        stream.unlogged += data
        # Whole lines only, because stdout and stderr share the file; pieces follow with the tick.
        cut = max(stream.unlogged.rfind(b"\n"), stream.unlogged.rfind(b"\r")) + 1
        if not cut and len(stream.unlogged) > 1 << 16:
            cut = len(stream.unlogged)
        self._log(stream, cut)
        self._show(stream, stream.lines.feed(data))
        self._look()

    def _log(self, stream: _Stream, count: int) -> None:
        if not count:
            return
        data = bytes(stream.unlogged[:count])
        del stream.unlogged[:count]
        self._files.put(stream.log, data)
        if (also := stream.route.also.get(stream.name)) is not None:
            self._files.put(also, data)

    def _show(self, stream: _Stream, lines: list[bytes]) -> None:
        if not lines or not stream.route.shown[stream.name]:
            return
        text = "".join(f"{stream.route.prefix}{printable(line)}\n" for line in lines).encode(errors="backslashreplace")
        self._terminal.put(stream.name, text)

    def _look(self) -> None:
        """Stop reading for a while if a writer does not keep up."""
        if self._paused or not any(way.full for way in self._ways):
            return
        self._paused = True
        for fd in self._streams:
            self._loop.remove_reader(fd)
        self._stalled = self._loop.call_later(STALL, self._drop)

    def _drop(self) -> None:
        for way in self._ways:
            way.dropping = way.dropping or way.full
        self._resume()

    def _resume(self) -> None:
        if self._stalled:
            self._stalled.cancel()
            self._stalled = None
        if self._paused:
            self._paused = False
            for stream in self._streams.values():
                self._loop.add_reader(stream.fd, self._read, stream)

    def _wake(self) -> None:
        """Resume reading. Called on a writer's thread when it has nothing left to write."""
        if not (self._paused or any(way.dropping for way in self._ways)):  # the usual case: let the loop sleep
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._drained)

    def _drained(self) -> None:
        for way in self._ways:
            if way.dropping and way.writer.pending < LOW:
                way.dropping = False
                self._tell_dropped(way)
        if not self._closed and not any(way.full for way in self._ways):
            self._resume()

    def _tell_dropped(self, way: _Way) -> None:
        if way.dropped:
            self.say(agents.OUTPUT_STALLED(count=way.dropped, way=way.name))
            way.dropped = 0

    def _failed(self, path: str, error: OSError) -> None:
        """Report a failed write. Called on the writer's thread."""
        self.say(agents.LOG_UNWRITTEN(path=path, reason=error.strerror))

    def _tick(self) -> None:
        self._ticking = self._loop.call_later(TICK, self._tick)
        for stream in self._streams.values():
            lines = stream.lines.tick()
            if lines:
                self._log(stream, len(stream.unlogged))
                self._show(stream, lines)

    def _end(self, stream: _Stream) -> None:
        if self._streams.get(stream.fd) is not stream:  # ended before; the number may belong to a newer worker's pipe now
            return
        del self._streams[stream.fd]
        self._loop.remove_reader(stream.fd)
        os.close(stream.fd)
        self._log(stream, len(stream.unlogged))
        self._show(stream, stream.lines.end())
        for target in {stream.log, stream.route.also.get(stream.name, stream.log)}:
            self._files.writer.finished(target)
        if not stream.ended.done():
            stream.ended.set_result(None)


class _Way:
    """A writer, and whether its output is being dropped."""

    def __init__(self, name: str, writer: Writer) -> None:
        self.name = name
        self.writer = writer
        self.dropping = False
        self.dropped = 0

    def put(self, target: str, data: bytes) -> None:
        if self.dropping and self.writer.pending > HIGH:
            self.dropped += len(data)
        else:
            self.writer.put(target, data)

    @property
    def full(self) -> bool:
        """Return whether readers should wait for it."""
        return not self.dropping and self.writer.pending > HIGH


class _Stream:
    def __init__(self, worker: str, name: str, fd: int, route: Route, log: str) -> None:
        self.worker = worker
        self.name = name
        self.fd = fd
        self.route = route
        self.log = log
        self.lines = Lines()
        self.unlogged = bytearray()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
