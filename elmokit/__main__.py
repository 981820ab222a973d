"""``python -m elmokit`` is the ``elmokit`` command."""

from elmokit.cli import main

if __name__ == "__main__":
    main()
