"""What the tests of a study share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="module")
def _clean_registry():
    """Problems that a module defines are gone after it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("deceptron.problems.registry._DEFINED", {})
        yield
