"""The command line: parse, call, print; a user's mistake is one sentence, not a traceback.

Commands import what they need when they are called: ``deceptron --help`` must not wait for it.
"""

from deceptron.cli.app import main

__all__ = ["main"]
