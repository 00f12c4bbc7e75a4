"""A job's events over HTTP, as server-sent events (the `text/event-stream` of the HTML standard).

One frame for each event: its number is the `id`, so that a client that reconnects with `Last-Event-ID` continues at the right place; its
type is the `event`. When the job has ended and everything was sent, `end` follows, without an id.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from fastapi import FastAPI, Header, HTTPException, Query
from fastapi.responses import StreamingResponse
from sqlalchemy.exc import SQLAlchemyError

from understudy.messages import orchestrators
from understudy.orchestrator import problems
from understudy.orchestrator.history import History
from understudy.orchestrator.jobs import ServedJob
from understudy.orchestrator.journal import Numbered

MEDIA_TYPE = "text/event-stream"
Responses = dict[int | str, dict[str, Any]]
MOST = (1 << 31) - 1  # the largest number that an event can have


def add_events(app: FastAPI, found: Callable[[str], ServedJob], history: Callable[[], History], refusals: Responses, **access: Any) -> None:
    """Add the route. `refusals`: possible error answers of any request about a job; `access`: the required role, for the route's
    decorator.
    """
    responses: Responses = {200: {"content": {MEDIA_TYPE: {}}}, **refusals, 400: problems.RESPONSE, 503: problems.RESPONSE}

    @app.get("/v1/jobs/{job}/events", responses=responses, response_class=StreamingResponse, **access)
    async def events(
        job: str,
        after: int = Query(0, ge=0, le=MOST, description="return only events with a greater number"),
        follow: bool = Query(False, description="continue until the job has ended"),
        last_event_id: int = Header(
            0, ge=0, le=MOST, description="the same as `after`, as browsers send it; the greater of the two is used"
        ),
    ) -> StreamingResponse:
        """Return the events of a job, as server-sent events. Works after its end, too.

        `id` is the event's number, from 1 and without gaps; `event` its type; `data` an object with `number`, `time` (unix, in
        seconds), `type` and the fields of the type, as in the journal. When the job has ended and all events are sent, an event
        `end` follows, without an id; its data has the `exit_code`. Lines that begin with `:` keep the connection alive.
        """
        known, first = found(job), max(after, last_event_id)
        over = known.running.done()
        last = await history().settled() and over  # the next read returns everything
        try:
            await history().past(known.name, first)
        except SQLAlchemyError as error:
            raise HTTPException(503, orchestrators.EVENTS_UNREADABLE_NOW()) from error
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}  # the latter: nginx must not buffer
        return StreamingResponse(_frames(known, history(), first, follow, last), media_type=MEDIA_TYPE, headers=headers)


async def _frames(job: ServedJob, history: History, after: int, follow: bool, last: bool) -> AsyncGenerator[bytes, None]:
    blocks = history.follow(job.name, after, job.running) if follow else history.read(job.name, after)
    async with aclosing(blocks):
        async for block in blocks:
            yield b"".join(map(frame, block)) or b": nothing new\n\n"
    ended = job.service.machine.state.ended
    if (follow or last) and ended is not None:
        yield f'event: end\ndata: {{"exit_code": {ended.exit_code}}}\n\n'.encode()


def frame(event: Numbered) -> bytes:
    shown = event.shown()
    return f"id: {event.number}\nevent: {shown['type']}\ndata: {json.dumps(shown)}\n\n".encode()
