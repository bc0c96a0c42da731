#!/usr/bin/env python3
"""Makes table.go: what Python's tokenizers knows of every character.

The parts of tokenizers have tables of different versions of Unicode. This program asks them: it gives
every character to a normalizer or a pattern and records the answer. It needs the package tokenizers.

    python3 generate.py > table.go
"""

import sys

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

CATEGORIES = (
    "Cn Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co".split()
)
FLAGS = "Space Other Punctuation Nonspacing Combining Numeric Word Lower Normal Han PatternWord".split()

codes = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
every = "".join(map(chr, codes))


def kept(pre_tokenizer):
    """The characters outside the matches of a pre-tokenizer that removes them."""
    found = set()
    for _, (begin, end) in pre_tokenizer.pre_tokenize_str(every):
        found.update(codes[begin:end])
    return found


def pattern(regex):
    """The characters that a pattern of one character matches."""
    return kept(pre_tokenizers.Split(Regex(regex), "removed", invert=True))


def changed(normalizer):
    """The characters that a normalizer changes, with their new text."""
    pairs = ((c, normalizer.normalize_str(chr(c))) for c in codes)
    return {c: text for c, text in pairs if text != chr(c)}


def bert(**on):
    names = ("clean_text", "handle_chinese_chars", "strip_accents", "lowercase")
    return normalizers.BertNormalizer(**{n: on.get(n, False) for n in names})


def normal():
    """The characters that the normalization forms know: with a decomposition or a class, or in one."""
    nfd, nfkd = normalizers.NFD(), normalizers.NFKD()
    found = set(changed(nfkd))
    for text in changed(nfd).values():
        found.update(map(ord, text))
    for c in codes:
        # U+0334 has class 1 and U+0345 has 240: a character with a class changes places with one of them.
        if nfd.normalize_str(chr(c) + "\u0334")[:1] == "\u0334" or (
            nfd.normalize_str("\u0345" + chr(c))[:1] != "\u0345"
        ):
            found.add(c)
    return found


def varint(n):
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return out


def literal(data, width=100):
    """A constant of Go, in lines."""
    lines = []
    for i in range(0, len(data), width // 4):
        lines.append('\t"' + "".join(f"\\x{b:02x}" for b in data[i : i + width // 4]) + '"')
    return " +\n".join(lines)


def main():
    cleaned = changed(bert(clean_text=True))
    lower = changed(normalizers.Lowercase())
    every_code = set(codes)
    flags = {
        "Space": every_code - kept(pre_tokenizers.WhitespaceSplit()),
        "Other": {c for c, text in cleaned.items() if text == ""} - {0xFFFD},
        "Punctuation": every_code - kept(pre_tokenizers.Punctuation("removed")),
        "Nonspacing": {
            c for c in codes if normalizers.Sequence([bert(strip_accents=True)]).normalize_str(chr(c)) == ""
        },
        "Combining": {c for c, text in changed(normalizers.StripAccents()).items() if text == ""},
        "Numeric": {
            c for c in codes if len(pre_tokenizers.Digits().pre_tokenize_str("a" + chr(c) + "a")) > 1
        },
        "Word": {
            c for c in codes if len(pre_tokenizers.Whitespace().pre_tokenize_str("a" + chr(c) + "a")) == 1
        },
        "Lower": set(lower),
        "Normal": normal(),
        "Han": pattern(r"\p{Han}"),
        "PatternWord": pattern(r"\w"),
    }
    properties = dict.fromkeys(codes, 0)
    for number, category in enumerate(CATEGORIES):
        if number:
            for c in pattern(r"\p{" + category + "}"):
                properties[c] |= number
    for bit, name in enumerate(FLAGS):
        for c in flags[name]:
            properties[c] |= 1 << (5 + bit)

    runs, begin = bytearray(), 0
    for c in range(1, 0x110001):
        if c == 0x110000 or properties.get(c, 0) != properties.get(begin, 0):
            runs += varint(c - begin) + varint(properties.get(begin, 0))
            begin = c

    # Neighbours whose lower case is equally far away, one or two apart, are one row.
    rows = []
    for c, text in sorted(lower.items()):
        if len(text) != 1:
            assert c == 0x130, hex(c)
            continue
        delta = ord(text) - c
        if rows and rows[-1][3] == delta:
            first, count, step, _ = rows[-1]
            gap = c - (first + (count - 1) * step)
            if count == 1 and gap <= 2 or count > 1 and gap == step:
                rows[-1] = [first, count + 1, gap, delta]
                continue
        rows.append([c, 1, 1, delta])
    cases, last = bytearray(), 0
    for first, count, step, delta in rows:
        zigzag = delta * 2 if delta >= 0 else -delta * 2 - 1
        cases += varint(first - last) + varint(count) + varint(step) + varint(zigzag)
        last = first

    print("// Code generated by generate.py. DO NOT EDIT.\n\npackage characters\n")
    print(f"// Version is the version of Python's tokenizers that was asked.\nconst Version = {tokenizers.__version__!r}\n".replace("'", '"').replace('Python"s', "Python's"))
    print("// runs lists, for all characters in order, how many have the same properties, and these.")
    print("const runs = \"\" +\n" + literal(bytes(runs)) + "\n")
    print("// cases lists characters with a lower case: distance to the row before, count, step, and distance")
    print("// to the lower case.")
    print("const cases = \"\" +\n" + literal(bytes(cases)))
    print(len(runs), "bytes of runs,", len(rows), "rows of cases", file=sys.stderr)


main()
