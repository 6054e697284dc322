"""Learn a pair in three stages: forward surrogate, reverse map, local geometry."""

from deceptron.train.api import train
from deceptron.train.calibration import calibrate, recalibrate
from deceptron.train.loop import TrainingDiverged
from deceptron.train.presets import PRESETS, recipe
from deceptron.train.recipe import Build, Recipe, Stage, Weights

__all__ = [
    "PRESETS",
    "Build",
    "Recipe",
    "Stage",
    "TrainingDiverged",
    "Weights",
    "calibrate",
    "recalibrate",
    "recipe",
    "train",
]
