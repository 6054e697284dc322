"""For programs that do long work with the library: engines, folders of work, whole files, settings.

``deceptron.solve_file`` and the studies of the paper are made of these. A job is a function of a
module that writes its result whole or not at all, so that it may be done twice; an engine runs
jobs here, in other processes or on a cluster; a folder belongs to one piece of work and to one
process at a time.
"""

from deceptron.core.files import (
    make_folder,
    read_json,
    replacing,
    temporary_for,
    write_json,
    writing,
)
from deceptron.core.folder import Folder, environment
from deceptron.core.identity import plain
from deceptron.core.progress import progress
from deceptron.core.work import Engine, engine
from deceptron.train.settings import differing, problem_document

__all__ = [
    "Engine",
    "Folder",
    "differing",
    "engine",
    "environment",
    "make_folder",
    "plain",
    "problem_document",
    "progress",
    "read_json",
    "replacing",
    "temporary_for",
    "write_json",
    "writing",
]
