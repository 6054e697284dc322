"""The directive ``command-line``: what ``deceptron --help`` says about every command."""

from __future__ import annotations

import typer
from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from typer.cli import get_docs_for_click

from deceptron.cli.app import app as commands


class CommandLine(Directive):
    """Inserts Markdown, so it belongs on a Markdown page."""

    def run(self) -> list[nodes.Node]:
        command = typer.main.get_command(commands)
        context = typer.Context(command, info_name="deceptron")
        text = get_docs_for_click(obj=command, ctx=context, name="deceptron")
        _, _, sections = text.partition("\n## ")  # the page has a title and a list of its own
        place = nodes.section()
        place.document = self.state.document
        lines = StringList(f"## {sections}".splitlines(), source="deceptron --help")
        self.state.nested_parse(lines, self.content_offset, place, match_titles=True)
        return place.children


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("command-line", CommandLine)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
