"""Write novels, one sentence per line, without byte-order marks and headings.

    python scripts/clean_novels.py novels-all.train.txt.xz -o novels.txt

A heading is a line without a lower-case letter (CHAPTER XX., * * *), or one that begins with CHAPTER, BOOK, PART or
VOLUME and a number. Lines that hold a byte-order mark are titles.
"""

import argparse
import re
from pathlib import Path

from elmokit.atomic import atomic_file
from elmokit.text.lines import read_lines

MARK = "\ufeff"
NUMBERED = re.compile(r"(chapter|book|volume|part)\s+([ivxlc]+|\d+)\b", re.IGNORECASE)


def is_heading(text: str) -> bool:
    """Return whether a line is a title, a heading or a row of signs."""
    return MARK in text or text.upper() == text or NUMBERED.match(text) is not None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", help="text, also .gz and .xz")
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    num_lines = num_kept = 0
    with atomic_file(options.output) as new, new.open("w", encoding="utf-8") as file:
        for line in read_lines(options.files):
            num_lines += 1
            if line.text.strip() and not is_heading(line.text):
                file.write(f"{line.text}\n")
                num_kept += 1
    print(f"{options.output}: {num_kept:,} of {num_lines:,} lines")


if __name__ == "__main__":
    main()
