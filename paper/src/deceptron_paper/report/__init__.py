"""Tables, figures and one page of a study, made from its records alone; nothing here solves."""

from deceptron_paper.report.study import StudyReport, report_study

__all__ = ["StudyReport", "report_study"]
