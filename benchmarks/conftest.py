"""What is left of the tests beside benchmarks is ended as that of all others."""

from __future__ import annotations

from tests.watchdog import pytest_configure as pytest_configure
from tests.watchdog import pytest_unconfigure as pytest_unconfigure
