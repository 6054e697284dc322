"""Studies that compare the methods of deceptron on many problems, and reports of their records."""
