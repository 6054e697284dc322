"""Moved out of the library."""

raise ImportError("deceptron.study is deceptron_paper.study now: pip install ./paper")
