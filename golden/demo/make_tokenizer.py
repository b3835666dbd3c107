#!/usr/bin/env python3
"""Trains the demo model's vocabulary on captions: at most 1,024 ids with Qwen3.5's pattern and special tokens.

    make_tokenizer.py OUT_DIR

The same version of `tokenizers` gives the same bytes.
"""

import json
import random
import sys
from pathlib import Path

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tokenizer"))

from layout import BYTE_CHARACTERS, SPLIT_PATTERN, tokenizer_config, tokenizer_json  # noqa: E402
from make_tokenizer_json import SPECIAL_TOKENS  # noqa: E402
from scenes import draw_pair  # noqa: E402

SIZE = 1024


def main() -> None:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT_PATTERN), "isolated"), byte_level])
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE - len(SPECIAL_TOKENS), initial_alphabet=BYTE_CHARACTERS, show_progress=False, special_tokens=[])
    rng = random.Random(11)
    corpus = [draw_pair(rng)[1] for _ in range(30000)] + ["user", "assistant"] * 1000
    tokenizer.train_from_iterator(corpus, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    byte_of = {character: byte for byte, character in enumerate(BYTE_CHARACTERS)}

    def as_bytes(token: str) -> bytes:
        return bytes(byte_of[character] for character in token)

    tokens = [as_bytes(token) for token, _ in sorted(model["vocab"].items(), key=lambda entry: entry[1])]
    merges = [(as_bytes(a), as_bytes(b)) for a, b in model["merges"]]
    added = [(len(tokens) + i, content, special) for i, (content, special) in enumerate(SPECIAL_TOKENS)]
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    (out / "tokenizer.json").write_text(tokenizer_json(tokens, merges, added, indent=None), encoding="utf-8")
    (out / "tokenizer_config.json").write_text(tokenizer_config(added), encoding="utf-8")
    print(f"{out}: {len(tokens)} tokens, {len(merges)} merges, {len(added)} special tokens")


if __name__ == "__main__":
    main()
