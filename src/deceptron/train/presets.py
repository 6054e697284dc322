"""Recipes by name: ``standard`` is the default, ``paper`` reproduces, ``smoke`` takes seconds."""

from __future__ import annotations

from deceptron.core.errors import unknown_name
from deceptron.problems import Problem
from deceptron.train.paper import paper_recipe, reduced_recipe
from deceptron.train.recipe import Recipe
from deceptron.train.smoke import smoke_recipe
from deceptron.train.standard import recipe_for

_MAKERS = {
    "standard": recipe_for,
    "paper": paper_recipe,
    "paper-reduced": reduced_recipe,
    "smoke": smoke_recipe,
}
PRESETS = tuple(_MAKERS)


def recipe(problem: Problem, preset: str) -> Recipe:
    """The recipe of this preset for this problem."""
    if preset not in PRESETS:
        raise unknown_name("preset", preset, PRESETS)
    return _MAKERS[preset](problem)
