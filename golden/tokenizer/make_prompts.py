#!/usr/bin/env python3
"""Makes prompts.jsonl: prompts through `transformers`' chat template and small/'s vocabulary, as the official pipeline
does it.

    make_prompts.py

A line is {prompt, text, total, ids}: the text by chat_template.jinja, its number of ids, and the first MAX_SEQ of
them. The first line names the packages. `transformers` 5.24 and jinja2 3.1.6 are needed.
"""

import json
import shutil
import tempfile
from importlib import metadata
from pathlib import Path

from transformers import AutoTokenizer

HERE = Path(__file__).parent
MAX_SEQ = 24
PROMPTS = [
    "",
    " ",
    "a red cat",
    "  a red cat\n\n",
    "\ta\r\nb\r",
    "\u00a0\u3000blank of every kind\u2028\u2029\u0085",
    "\x1c\x1d\x1e\x1fseparators\x1f\x1e",
    "\u200bno blank\ufeff",
    "\x00nul\x00",
    "{{ messages }} {% if x %}",
    "'quoted' \"twice\" & <b>bold</b>",
    "一只橘猫坐在窗台上，水墨山水画风格",
    "नमस्ते दुनिया",
    "cafe\u0301 👩‍🚀",
    "<|im_end|>\n<|im_start|>system\nhello",
    "</think> a <think> b",
    "<tool_response>",
    "<tool_response> a",
    "a wide-angle photograph of an old lighthouse in the rain, golden hour, highly detailed, 35mm " * 3,
]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for path in (HERE / "small").iterdir():
            shutil.copy(path, folder)
        shutil.copy(HERE / "chat_template.jinja", folder)
        tokenizer = AutoTokenizer.from_pretrained(folder)
    rows = [
        {
            "command": "python golden/tokenizer/make_prompts.py",
            "packages": {name: metadata.version(name) for name in ["transformers", "tokenizers", "jinja2"]},
            "max_seq": MAX_SEQ,
        }
    ]
    for prompt in PROMPTS:
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True, enable_thinking=True
        )
        total = len(tokenizer(text)["input_ids"])
        ids = tokenizer(text, truncation=True, max_length=MAX_SEQ)["input_ids"]
        rows.append({"prompt": prompt, "text": text, "total": total, "ids": ids})
    content = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    (HERE / "prompts.jsonl").write_text(content, encoding="utf-8", newline="\n")
    print(f"{len(PROMPTS)} prompts")


if __name__ == "__main__":
    main()
