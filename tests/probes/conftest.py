"""Tests run alike in a container and outside."""

import pytest


@pytest.fixture(autouse=True)
def _outside_of_containers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("probes.evidence.MARKS_OF_CONTAINERS", ())
