"""Moved out of the library."""

raise ImportError("deceptron.report is deceptron_paper.report now: pip install ./paper")
