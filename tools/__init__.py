"""Things that are run in the repository, not installed with the package."""
