"""A page about a solved file: how its rows ended and why, and which of them to look at."""

from deceptron.view.page import write_page

__all__ = ["write_page"]
