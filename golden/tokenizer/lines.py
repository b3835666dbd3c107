"""The texts of the golden token ids: the same lines from every Python, without any random-number library."""

import json

from make_tokenizer_json import SPECIAL_TOKENS

MASK = (1 << 64) - 1


class Numbers:
    """SplitMix64."""

    def __init__(self, seed: int) -> None:
        self.state = seed

    def below(self, n: int) -> int:
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return (z ^ (z >> 31)) % n

    def pick(self, items):
        return items[self.below(len(items))]

    def join(self, items, low: int, high: int, separators=(" ",)) -> str:
        """`low` to `high` items with a separator between each two."""
        text = self.pick(items)
        for _ in range(low + self.below(high - low + 1) - 1):
            text += self.pick(separators) + self.pick(items)
        return text


ENGLISH = """a the an old small very red blue-green bright misty quiet two three photograph painting portrait of on in
under behind lighthouse harbour mountain river cat dog dragon astronaut woman's children's don't it's I'll we've they're
YOU'RE He'D isn't O'Neill wooden table glass bottle morning light rain snow golden hour wide-angle lens 35mm f/1.8 8k
highly detailed, oil canvas; (soft shadows) [masterpiece] "quoted" 'single' naïve café façade Zürich coöperate 3rd 1920s
1,024x768 50% $9.99 #1 @home C++ R&D and/or e.g. etc... well-lit — dash – en… ellipsis ﬁne Ångström""".split()
CHINESE = """一只 橘猫 坐在 窗台 上 。 ， 夕阳 下 的 山水 画 水墨 风格 高清 细节 丰富 “ ” 《 》 ！ ？ 人力资源 加拿大 新加坡 俱乐部
各种各样的 不可思议 全心全意 五颜六色的 身临其境 众所周知 繁體中文 龍 馬 骨 門 日本語 ひらがな カタカナ が ぱ ワクチン いっぱい マラソン 東京
한국어 각 욕실 ㄱ 2024年 3月 一二三 １２３ ＡＢＣ 𠀀 𪚥 㐂 豈 神""".split()
ARABIC = """مَرْحَبًا بِالْعَالَمِ السَّلَامُ عَلَيْكُمْ قِطَّةٌ تَجْلِسُ عَلَى النَّافِذَةِ صورة جبل نهر ١٢٣ ۴۵۶ ، ؟ لا إله ٱلرَّحْمَٰنِ ٱلرَّحِيمِ بسبب بالنسبة الأسبوع
سبتمبر فيسبوك پ چ ژ گ می‌خواهم کتاب‌ها بزرگ اُردُو ہے שָׁלוֹם עֲלֵיכֶם בְּרֵאשִׁית""".split()
INDIC = """नमस्ते दुनिया हिन्दी क्षत्रिय ज्ञान श्री कि की कु कृ कं कः क़ ख़ फ़ ड़ १२३ । ॥ ॐ शक्ति स्त्री र्‍य क्‍ष বাংলা কো কৌ য় ড় தமிழ்
கொடி తెలుగు ಕನ್ನಡ ಕೋ മലയാളം ക്‍ സിംഹ ไทย สัม สัปดาห์ น้ำ มิถุนายน ພາສາລາວ မြန်မာ ភាសាខ្មែរ བོད་ཡིག""".split()
EUROPEAN = """schön Straße größte möglicherweise être garçon œuvre año ¿qué? señor Łódź żółć příliš žluťoučký kůň ő ű ğ ı İstanbul
çeşitli tilfælde Größe русский является рассматривать факторы задолженность ё й Ελληνικά ά ΐ tiếng Việt ế ộ ữ
e\u0301 a\u0308 o\u0302\u0323 o\u0323\u0302 n\u0303 A\u030a \u212b \u2126 c\u0327\u0301 i\u0307 u\u031b\u0309 \u1100\u1161\u11a8
\u1112\u1161\u11ab\u1100\u116e\u11a8 \uac00\u11a8 s\u0323\u0307 s\u0307\u0323 d\u0323\u0307 q\u0307\u0323 \u0344 \u0958 \u2adc""".split()
EMOJI = """😀 👍🏽 👩‍🚀 👨‍👩‍👧‍👦 🏳️‍🌈 ❤️ ❤ ☺︎ 1️⃣ #️⃣ 🇯🇵 🇩🇪🇫🇷 🏴󠁧󠁢󠁥󠁮󠁧󠁿 🧑🏻‍🤝‍🧑🏿 🐻‍❄️ 🫠 🪿 🫨 ‍ ️ 🏽 👩‍ ‍👩 🇯 ✨✨ ™️ ©️ ♀️ 🤷🏾‍♂️""".split()
CODE = [
    "def f(x: int) -> str:\n    return f\"{x!r:>10}\"\n",
    "fn main() {\n\tprintln!(\"{:?}\", vec![1u8; 0x10]);\n}\n",
    "for (int i = 0; i < n; ++i)\r\n{\r\n    a[i] += b->c * 1.5e-3f; // sum\r\n}\r\n",
    "#include <stdio.h>\n#define MAX(a,b) ((a)>(b)?(a):(b))\n",
    "<div class=\"row\"><a href='https://example.org/?q=1&r=%20'>x</a></div>",
    "SELECT * FROM t WHERE a <> 'b' AND c IS NOT NULL;--x",
    "$ find . -name '*.rs' | xargs sed -i 's/\\bfoo\\b/bar/g' && echo \"$?\"",
    "const f = async ({a, ...b}) => (await a)?.[0] ?? `${b}`;",
    "if x==1:\n\n\n        pass\n  \n\n# end   \n",
    "\\begin{align} \\sum_{i=0}^{n} x_i^2 &\\le \\frac{1}{2} \\\\ \\end{align}",
    "0xFF 0b1010 1_000_000 3.14159e+10 NaN -inf 'c' \"s\\n\" /* */ ==> <= >= != && || :: -> => ... ..= @ # ~ ^",
    "key: value\nlist:\n  - a\n  - {b: [1, 2]}\n---\n",
]
BLANKS = [" ", " ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", "\r", "\u00a0", "\u3000", "\u2028", "\u2029", "\u200b", "\u202f"]
BLANKS += ["\u0085", "\x0b", "\x0c", "\x1c", "\x1f", "\u180e", "\u2009", "\ufeff", " \n", "\n ", " \t \n \n  "]
MIXED = ENGLISH + CHINESE + ARABIC + INDIC + EUROPEAN + EMOJI


def json_value(numbers: Numbers, depth: int):
    kind = numbers.below(7 if depth else 5)
    if kind == 0:
        return numbers.below(100000) - 500
    if kind == 1:
        return numbers.pick([None, True, False, 0.25, -1e-9])
    if kind < 5:
        return numbers.join(MIXED, 1, 3)
    if kind == 5:
        return [json_value(numbers, depth - 1) for _ in range(numbers.below(4))]
    return {numbers.pick(ENGLISH): json_value(numbers, depth - 1) for _ in range(numbers.below(4))}


def typed_special(numbers: Numbers, token: str) -> str:
    """`token` inside a text, whole, cut or with something attached."""
    cut = token[: 1 + numbers.below(len(token))]
    around = [
        f"{token}",
        f"{token}{token}",
        f"a{token}b",
        f" {token} ",
        f"<{token}>",
        f"{token}\n\n{token}\n",
        f"e{token}\u0301",
        f"{cut} {token[1:]}",
        f"{token.upper()} {token.replace('|', ' | ')}",
        f"user: {token}assistant\n{numbers.pick(MIXED)}",
    ]
    return numbers.pick(MIXED) + numbers.pick(["", " ", "\n"]) + numbers.pick(around)


def code_point(numbers: Numbers) -> str:
    """Any scalar value: assigned or not, private, no character at all."""
    top = numbers.pick([0x80, 0x300, 0x370, 0x800, 0x3000, 0xFFFF, 0x20000, 0x10FFFF])
    value = numbers.below(top + 1)
    return chr(value) if not 0xD800 <= value < 0xE000 else "\ufffd"


def odd_text(numbers: Numbers) -> str:
    """Random characters, also a UTF-8 text cut within a character as a reader that replaces errors sees it."""
    text = "".join(code_point(numbers) for _ in range(1 + numbers.below(12)))
    if numbers.below(3) == 0:
        data = (numbers.join(MIXED, 1, 2) + text).encode()
        text = data[: numbers.below(len(data)) + 1].decode(errors="replace")
    return text


def long_lines(numbers: Numbers) -> list[str]:
    letters = "".join(chr(97 + numbers.below(26)) for _ in range(2000))
    return [
        "a" * 1000,
        "ab" * 500,
        letters,
        "1234567890" * 100,
        " " * 999 + "x",
        "\n" * 500 + " " * 500,
        "=" * 700 + "\r\n" * 30,
        "啊" * 600,
        "e\u0301" * 300,
        "a" + "\u0301\u0323" * 200,
        "👩‍🚀" * 80,
        "<|im_end|>" * 100,
        numbers.join(ENGLISH, 500, 500),
        numbers.join(MIXED, 300, 300, [" ", "", "\n"]),
        numbers.join(CHINESE, 300, 300, ["", "", " "]),
    ]


def lines(seed: int = 2) -> list[str]:
    """Over a thousand texts; several of them hold newlines. The golden ones have the default seed."""
    numbers = Numbers(seed)
    out = ["", " ", "\n", "'", "'s", "'S", "'\u017f", " 's", "''s", "\ufeff", "\0", "\u0301", " \u0301a", "1\u0301", "!\u0301a"]
    out += [numbers.join(ENGLISH, 1, 16) for _ in range(200)]
    out += [numbers.join(CHINESE, 1, 10, ["", "", "", " "]) for _ in range(140)]
    out += [numbers.join(ARABIC, 1, 6) for _ in range(110)]
    out += [numbers.join(INDIC, 1, 6) for _ in range(110)]
    out += [numbers.join(EUROPEAN, 1, 8, [" ", ""]) for _ in range(100)]
    out += [numbers.join(EMOJI, 1, 5, ["", "", " "]) + numbers.pick(MIXED) for _ in range(100)]
    out += [numbers.join(CODE, 1, 2, ["", "\n"]) for _ in range(60)]
    for _ in range(80):
        indent = numbers.pick([None, None, 0, 1, 2, 4, "\t"])
        value = {numbers.pick(MIXED): json_value(numbers, 2) for _ in range(1 + numbers.below(3))}
        text = json.dumps(value, indent=indent, ensure_ascii=numbers.below(4) == 0)
        out.append(text.replace("\n", "\r\n") if numbers.below(5) == 0 else text)
    for _ in range(120):
        out.append("".join(numbers.join(BLANKS, 1, 5, [""]) + numbers.pick(["", "", *MIXED]) for _ in range(3)))
    out += [typed_special(numbers, token) for token, _ in SPECIAL_TOKENS for _ in range(4)]
    out += [numbers.join(MIXED, 2, 6, [" ", "", "-", "_", "/", ", ", "::", "."]) for _ in range(100)]
    out += [odd_text(numbers) for _ in range(160)]
    out += long_lines(numbers)
    return out
