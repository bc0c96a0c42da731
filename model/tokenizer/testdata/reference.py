#!/usr/bin/env python3
"""Prints what Python's tokenizers makes of texts, for the tests of model/tokenizer.

    reference.py table            few texts and small vocabularies: the checked-in cases.json
    reference.py full FOLDER      thousands of texts, made of the files *.md below a folder and of a hostile mix

The output is a list of JSON objects, one a line: a tokenizer.json, then its cases. A case is a text, or two, the
maximum number of ids or -1, and the ids and type ids, or an error. With "full", a text that shows how a part works
has the checksum of its ids only.
"""

import io
import json
import pathlib
import random
import struct
import sys
import zlib

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

N, P = normalizers, pre_tokenizers

HOSTILE = [
    "", " ", "\x00", "a\x00b", "  two  spaces  ", "\ttab\nline\r\nend\r", "Hello, World! It's 3.14 o'clock, don't.",
    "ÀÉÎõü ǅ ß İstanbul ıI ΑΣΊΓΜΑΣ", "e\u0301a\u0308\u0323 a\u0323\u0308 \u0344 \u1e9b\u0323", "z" + "\u0301\u0323" * 40,
    "\u0300abc", "中文字符 and 日本語テキスト한국어 \U00020000", "가각ᄀ\u1161\u11a8 \u1112\u1161", "ﬁ ﬀ ½ ① ㎏ Ⅷ ｱｲｳ ＡＢＣ", "👩‍👩‍👧 🇩🇪🇫 ❤️ ©\ufe0f",
    "नमस्ते क्षत्रिय", "สวัสดีครับ", "שָׁלוֹם עליכם", "السلام عليكم", "\u200b\u200d\ufeff\u00ad\u2028\u2029\u3000", "\ufffd \ufff9",
    "[CLS] a [SEP] <s>b</s> <unk> [UNK] [MASK]mask [MASK ] <|endoftext|>", "##ing ##s ▁a ▁▁ Ġ Ċ <0x41>", "x" * 101, "word " * 40,
    "ͅa\u0334\u0345 \U00011938 \U00011935\U00011930 \U000105d2\u0307 \U000113c2\U000113c2 \u0897\u0334", "1,234.5e-6 ٣٤ ²³ Ⅻ", "I'M we'LL 'S 'ſ it's", "a" * 3 + "\u0301",
    "newword  newword NEWWORD newwordly xnewword [new] lspace   lspace rspace   rspace x", "tail   ", "\n\n\n   \n a", "…—“quoted”‘x’ «y» ¿¡", "a-b_c/d\\e|f~g^h`i$j+k=l<m>",
]


def hostile(random, words, count):
    """Mixes words, names of tokens and characters of many blocks."""
    blocks = [(0x20, 0x7F), (0xA0, 0x250), (0x300, 0x36F), (0x370, 0x500), (0x590, 0x700), (0x900, 0x980), (0xE00, 0xE80), (0x1100, 0x1200),
              (0x1E00, 0x1F00), (0x2000, 0x2070), (0x3040, 0x3100), (0x4E00, 0x5000), (0xAC00, 0xAC80), (0xFB00, 0xFB50), (0xFF00, 0xFFEF),
              (0x1F1E6, 0x1F200), (0x1F600, 0x1F650), (0, 0x20), (0x20000, 0x20010), (0x11900, 0x11960)]
    names = ["[CLS]", "[SEP]", "[MASK]", "<s>", "</s>", "<unk>", "newword", "[new]", "lspace", "rspace", "##ing", "▁", "Ġ", "'s", "n't", "I'm", "1234567", "\r\n"]
    for _ in range(count):
        text = ""
        for _ in range(random.randint(0, 50)):
            chance = random.random()
            if chance < 0.3:
                text += random.choice(words)[:12] + random.choice([" ", "  ", "\n", "\t", ""])
            elif chance < 0.4:
                text += random.choice(names)
            else:
                text += chr(random.choice(range(*random.choice(blocks))))
        yield text


def swept():
    """Every character, between letters, with a mark, and beside its neighbours."""
    codes = [c for c in range(0x323B0) if not 0xD800 <= c <= 0xDFFF and not 0x3500 <= c < 0x4D00 and not 0x4F00 <= c < 0x9F00 and not 0xAD00 <= c < 0xD700
             and not 0x17100 <= c < 0x18700 and not 0x20100 <= c < 0x2F800 and not 0x30100 <= c < 0x32300 and not 0xE100 <= c < 0xF800]
    for i in range(0, len(codes), 32):
        part = codes[i : i + 32]
        yield "".join(f"a{chr(c)}b" for c in part)
        yield "".join(map(chr, part))
        yield " ".join(f"{chr(c)}\u0301" for c in part)


def bytes_of_words():
    """A model whose ids tell all bytes of a text and the ends of its words."""
    alphabet = sorted(P.ByteLevel.alphabet())
    vocab = {c: i for i, c in enumerate(alphabet + [c + "</w>" for c in alphabet] + ["[CLS]", "[SEP]"])}
    return models.BPE(vocab=vocab, merges=[], end_of_word_suffix="</w>")


def charsmaps(size):
    """Maps of characters as sentencepiece makes them: one of a few rules, or its own."""
    rules = "61 301\te1\n41\t61\n2001\t20\n200B\t\nDF\t73 73\nFB01\t66 69\n31 32\t78\nD A\t20\n"
    path = pathlib.Path("/tmp") / f"rules-{random.random()}.tsv"
    path.write_text(rules)
    named = {"normalization_rule_tsv": str(path)}, {"normalization_rule_name": "nmt_nfkc"}, {"normalization_rule_name": "nfkc_cf"}
    for arguments in named if size == "full" else named[:1]:
        out = io.BytesIO()
        sentences = iter(["a b c d e f " * 3, "the quick brown fox jumps over the lazy dog"] * 20)
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=sentences, model_writer=out, vocab_size=34, hard_vocab_limit=False, minloglevel=3, **arguments)
        # The map is in the field 2 of the normalizer's message.
        from sentencepiece import sentencepiece_model_pb2 as pb

        message = pb.ModelProto()
        message.ParseFromString(out.getvalue())
        yield message.normalizer_spec.precompiled_charsmap
    path.unlink()


def probes(size):
    """Normalizers and pre-tokenizers, each with a name."""
    bert = lambda *a: N.BertNormalizer(clean_text=a[0], handle_chinese_chars=a[1], strip_accents=a[2], lowercase=a[3])
    for i, m in enumerate(charsmaps(size)):
        yield f"precompiled-{i}", N.Precompiled(m), None
    yield "bert", bert(True, True, None, True), P.BertPreTokenizer()
    yield "bert-cased", bert(True, True, None, False), P.BertPreTokenizer()
    yield "bert-accents", bert(False, True, True, False), P.BertPreTokenizer()
    yield "bert-lower", bert(False, False, False, True), P.WhitespaceSplit()
    for form in (N.NFC(), N.NFD(), N.NFKC(), N.NFKD()):
        yield type(form).__name__, form, P.Whitespace()
    yield "strip-accents", N.Sequence([N.NFD(), N.StripAccents(), N.Lowercase()]), P.Punctuation()
    yield "nmt", N.Sequence([N.Nmt(), N.Strip()]), P.Digits(individual_digits=True)
    yield "strip-left", N.Sequence([N.Strip(True, False), N.Prepend("▁")]), P.Digits()
    yield "replace", N.Sequence([N.Replace(" ", "▁"), N.Replace(Regex("[a-c]{2,}|\\d+"), "#"), N.Replace("ing", "")]), P.Metaspace(prepend_scheme="first")
    yield "replace-first", N.Replace(Regex(" {2,}"), " "), P.Metaspace(prepend_scheme="first")
    yield "metaspace", None, P.Metaspace()
    yield "metaspace-never", None, P.Metaspace(prepend_scheme="never", split=False)
    yield "metaspace-first", N.Strip(), P.Sequence([P.WhitespaceSplit(), P.Metaspace(prepend_scheme="first")])
    yield "byte-normalizer", N.ByteLevel(), P.Whitespace()
    yield "byte-level", None, P.ByteLevel(add_prefix_space=True)
    yield "byte-level-twice", None, P.Sequence([P.Digits(), P.ByteLevel(add_prefix_space=False)])
    yield "delimiter", None, P.CharDelimiterSplit("-")
    for behaviour in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"):
        yield "punctuation-" + behaviour, None, P.Punctuation(behaviour)
        yield "split-" + behaviour, None, P.Split(" ", behaviour)
        yield "split-inverted-" + behaviour, None, P.Split(Regex(r"\w+|[^\w\s]"), behaviour, invert=True)
    for i, pattern in enumerate(PATTERNS):
        yield f"pattern-{i}", None, P.Split(Regex(pattern), "isolated")


# Patterns of public tokenizers (GPT-2, GPT-4, Llama 3, Qwen 2, GPT-4o, DeepSeek, Bloom, StarCoder), and constructs.
PATTERNS = [
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"\s+$", r"[一-龥ࠀ-一가-퟿]+", r"\p{N}{1,3}", r" ?[^(\s|[.,!?…。，、।۔،])]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"\d{1,3}(?=(\d{3})*\b)", r"(?<=\w)\W|(?<!a)b", r"^.|.$", r"[a-z&&[^aeiou]]+", r"(?>a+|b)c?|x*?y|\Aq|.\z", r"(?:ab|a)++|\h{2}|\x41\u0042", r"(?i)straße|[K]",
    r"\bw\w*\B|\S\s{0,2}?", r"\p{Han}+|\p{^L}", r"", r"a*",
]


def trained(size, texts):
    """Tokenizers with models of all kinds, trained on texts."""
    vocab, every = 3000 if size == "full" else 400, texts
    special = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]", "<unk>", "<s>", "</s>"]

    def train(model, trainer, normalizer=None, pre_tokenizer=None, **options):
        t = Tokenizer(model)
        if normalizer:
            t.normalizer = normalizer
        if pre_tokenizer:
            t.pre_tokenizer = pre_tokenizer
        t.train_from_iterator(texts, trainer(vocab_size=vocab, special_tokens=special, show_progress=False, **options))
        return t

    t = train(models.WordPiece(unk_token="[UNK]"), trainers.WordPieceTrainer, N.BertNormalizer(), P.BertPreTokenizer())
    t.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    yield "wordpiece", t
    t = Tokenizer.from_str(t.to_str())
    t.add_tokens([AddedToken("newword", single_word=True, normalized=True), AddedToken("[new]", normalized=False), AddedToken("lspace", lstrip=True), AddedToken("rspace", rstrip=True, normalized=False)])
    t.add_special_tokens([AddedToken("[MASK]", lstrip=True, rstrip=True, normalized=True), AddedToken("Neu", single_word=True)])
    t.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
    yield "wordpiece-added", t

    t = train(models.BPE(), trainers.BpeTrainer, None, P.ByteLevel(add_prefix_space=False), initial_alphabet=P.ByteLevel.alphabet())
    t.post_processor = processors.RobertaProcessing(("</s>", 7), ("<s>", 6), trim_offsets=True, add_prefix_space=False)
    yield "bpe-bytes", t
    t = Tokenizer.from_str(t.to_str().replace('"ignore_merges":false', '"ignore_merges":true'))
    t.pre_tokenizer = P.Sequence([P.Split(Regex(PATTERNS[1]), "isolated"), P.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.post_processor = processors.Sequence([processors.ByteLevel(), processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B:1", special_tokens=[("<s>", 6)])])
    yield "bpe-ignore-merges", t
    t = train(models.BPE(unk_token="<unk>"), trainers.BpeTrainer, N.NFKC(), P.Whitespace(), limit_alphabet=60)
    yield "bpe-unknown", t
    data = json.loads(t.to_str())
    data["model"]["fuse_unk"] = True
    yield "bpe-fuse", Tokenizer.from_str(json.dumps(data))
    # Some of the bytes have tokens, so that unknown characters wait for others.
    for name, step in ("bpe-fallback", 1), ("bpe-some-fallback", 3):
        known = json.loads(json.dumps(data))
        known["model"]["byte_fallback"] = True
        for b in range(0, 256, step):
            known["model"]["vocab"].setdefault(f"<0x{b:02X}>", len(known["model"]["vocab"]))
        yield name, Tokenizer.from_str(json.dumps(known))
    t = train(models.BPE(unk_token="<unk>", continuing_subword_prefix="##", end_of_word_suffix="</w>"), trainers.BpeTrainer, N.Lowercase(), P.BertPreTokenizer(),
              continuing_subword_prefix="##", end_of_word_suffix="</w>", limit_alphabet=60)
    yield "bpe-affixes", t
    # Without a pre-tokenizer a text is one long word.
    texts = texts[:200]
    yield "bpe-long-words", train(models.BPE(), trainers.BpeTrainer)
    texts = every

    t = train(models.Unigram(), trainers.UnigramTrainer, N.Sequence([N.NFKC(), N.Replace(Regex(" {2,}"), " ")]), P.Metaspace(), unk_token="<unk>")
    t.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 6), ("</s>", 7)])
    yield "unigram", t
    data = json.loads(t.to_str())
    data["model"]["byte_fallback"] = True
    data["pre_tokenizer"] = None
    data["model"]["vocab"] += [[f"<0x{b:02X}>", -20.5] for b in range(256)]
    yield "unigram-fallback", Tokenizer.from_str(json.dumps(data))


def encode(t, texts, maximum):
    if maximum >= 0:
        t.enable_truncation(maximum)
    else:
        t.no_truncation()
    try:
        e = t.encode(*texts)
        return [texts, maximum, e.ids, e.type_ids, ""]
    except Exception as error:  # pyo3's panics are no Exception, and must not come.
        return [texts, maximum, None, None, str(error)]


def checksum(case):
    if case[2] is None:
        return case
    return case[:2] + [None, None, "", zlib.crc32(struct.pack(f"<{len(case[2])}i", *case[2]))]


def write(name, t, texts, pairs, change=lambda case: case):
    t = Tokenizer.from_str(t.to_str())  # Scores are read back with less precision.
    cases = [change(encode(t, [text], -1)) for text in texts]
    for i, (a, b) in enumerate(pairs):
        cases.append(encode(t, [a, b], -1))
        cases.append(encode(t, [a], 4 + i % 9))
        cases.append(encode(t, [a, b], 5 + i % 13))
    t.no_truncation()
    print(json.dumps({"name": name, "file": json.loads(t.to_str())}, ensure_ascii=True))
    for case in cases:
        print(json.dumps(case, ensure_ascii=True))


def main():
    random.seed(1)
    size = sys.argv[1]
    if size == "full":
        pages = [p.read_text() for p in sorted(pathlib.Path(sys.argv[2]).rglob("*.md"))]
        prose = [part for page in pages for part in page.split("\n\n") if part.strip()]
        random.shuffle(prose)
        prose = prose[:1500]
    else:
        prose = ["A function states an objective.", "Requests are batched so that each is answered in time.", "The café's naïve façade, 東京 1234."] * 10
    words = [w for text in prose for w in text.split()]
    mixed = HOSTILE + list(hostile(random, words, 2000 if size == "full" else 5))
    sweep = list(swept()) if size == "full" else []
    pairs = list(zip(mixed, reversed(mixed)))[: 500 if size == "full" else 6]
    for name, t in trained(size, prose):
        write(name, t, prose + mixed if size == "full" else mixed, pairs)
    for name, normalizer, pre_tokenizer in probes(size):
        t = Tokenizer(bytes_of_words())
        if normalizer:
            t.normalizer = normalizer
        parts = [p for p in [pre_tokenizer] if p]
        t.pre_tokenizer = P.Sequence(parts + [P.ByteLevel(add_prefix_space=False, use_regex=False)])
        if size == "full":
            step = 3 if name.startswith(("pattern", "split")) else 1
            write(name, t, mixed[:400] + sweep[::step], pairs[:2], checksum)
        else:
            write(name, t, mixed, pairs[:2])


main()
