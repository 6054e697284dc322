"""Recipes by name: ``standard`` is the default, ``paper`` reproduces, ``smoke`` takes seconds."""

from __future__ import annotations

from deceptron.core.errors import unknown_name
from deceptron.problems import Problem
from deceptron.train.paper import paper_recipe, reduced_recipe
from deceptron.train.recipe import Recipe
from deceptron.train.smoke import smoke_recipe

PRESETS = ("standard", "paper", "paper-reduced", "smoke")


def recipe(problem: Problem, preset: str) -> Recipe:
    """The recipe of this preset for this problem."""
    if preset == "paper":
        return paper_recipe(problem)
    if preset == "paper-reduced":
        return reduced_recipe(problem)
    if preset == "smoke":
        return smoke_recipe(problem)
    if preset == "standard":
        from deceptron.train.standard import recipe_for  # its networks are only needed here

        return recipe_for(problem)
    raise unknown_name("preset", preset, PRESETS)
