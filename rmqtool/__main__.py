"""Lets `python -m rmqtool` do what the console script `rmqtool` does."""

from rmqtool.commands.app import main

if __name__ == "__main__":
    main()
