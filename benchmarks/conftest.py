"""End processes that tests of the benchmarks leave running, as those of all other tests."""

from __future__ import annotations

from tests.watchdog import pytest_configure as pytest_configure
from tests.watchdog import pytest_unconfigure as pytest_unconfigure
