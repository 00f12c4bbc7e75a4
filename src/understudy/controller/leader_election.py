"""Leader election among several controllers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from understudy.messages import controller
from understudy.schedulers.base import SchedulerFailed
from understudy.schedulers.kubernetes.api import Api
from understudy.schedulers.kubernetes.leader_lease import LeaderLease, Lost

NAME = "understudy-controller"
SECONDS, RENEW, TRY = 10, 2.0, 1.0


class LeaderElection:
    """Holds the lease, and renews it on a thread."""

    def __init__(self, api: Api, namespace: str, holder: str, tell: Callable[[str], None]) -> None:
        self._lock = LeaderLease(api, namespace, NAME, holder, SECONDS)
        self._tell = tell
        self._good_until = 0.0
        self._lost = threading.Event()

    def wait(self) -> None:
        """Wait until this controller has the lease."""
        reported = ""
        while True:
            asked = time.monotonic()
            try:
                taken = self._lock.take()
                other = self._lock.other.partition(" ")[0] or "another controller"
                why = controller.WAITS_FOR_LEAD(other=other)
            except SchedulerFailed as error:
                taken, why = None, controller.LEAD_NOT_KNOWN(problem=str(error))
            if taken is not None:
                self._good_until = asked + SECONDS
                threading.Thread(target=self._keep, name="lock", daemon=True).start()
                return
            if why != reported:
                reported = why
                self._tell(why)
            time.sleep(TRY)

    def __call__(self) -> bool:
        return not self._lost.is_set() and time.monotonic() < self._good_until

    def give_up(self) -> None:
        self._lost.set()
        with suppress(SchedulerFailed):  # it expires
            self._lock.give_up()

    def _keep(self) -> None:
        while not self._lost.wait(RENEW):
            asked = time.monotonic()
            try:
                self._lock.renew()
                self._good_until = asked + SECONDS
            except Lost:
                self._lost.set()
            except SchedulerFailed:  # until it has expired
                continue
