"""Text as it may be printed to a terminal."""


def printable(text: str) -> str:
    """Return text without control characters, which could move the cursor or change the terminal. Newlines stay."""
    return "".join(char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}" for char in text)
