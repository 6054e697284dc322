"""``python -m deceptron.cli``, which ``torchrun -m`` needs."""

from deceptron.cli.app import main

if __name__ == "__main__":
    main()
