"""The command `minilm-search`."""

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from minilm_search import __version__

__all__ = ["main"]


@dataclass(frozen=True)
class Line:
    file: str
    line: int  # from 1
    text: str


def main() -> None:
    options = parse_arguments()
    try:
        lines = [line for file in options.files for line in read_lines(file)]
    except ValueError as error:
        sys.exit(f"minilm-search: {error}.")

    # Imported only now: it brings torch, and neither --help nor a mistyped file name should wait for that.
    from minilm_search.search import Embedder, best_matches

    matches = best_matches(Embedder(), options.query, [line.text for line in lines], options.top)
    found = [{"score": match.score, **asdict(lines[match.index])} for match in matches]
    if options.json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        for row in found:
            print("{score:.3f}  {file}:{line}  {text}".format(**row))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="minilm-search",
        description="Print the lines of some text files that are nearest in meaning to a query.",
    )
    parser.add_argument("query", help="what to look for, in your own words")
    parser.add_argument("files", metavar="FILE", nargs="+", help="a UTF-8 text file; its lines are searched")
    parser.add_argument(
        "--top", type=positive, default=5, metavar="N", help="how many lines to print (default: 5)"
    )
    parser.add_argument("--json", action="store_true", help="print a JSON list of score, file, line and text")
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    return parser.parse_args()


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def read_lines(file: str) -> list[Line]:
    """The lines of the file that hold text. ValueError, with a sentence, if there are none to be had."""
    try:
        content = Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{file} is not a UTF-8 text file") from None
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror}") from None
    texts = enumerate(map(str.strip, content.split("\n")), start=1)
    lines = [Line(file, number, text) for number, text in texts if text]
    if not lines:
        raise ValueError(f"{file} has no lines to search: it is empty")
    return lines
