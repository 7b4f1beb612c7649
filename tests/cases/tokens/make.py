"""Makes pre.json, what tests/gguf.rs holds tokenizers made of GGUF metadata against. Needs `regex` and
`tokenizers` (to train a vocabulary). The ids come from this file's own splitting and merging, with the
patterns of llama.cpp's src/llama-vocab.cpp, not from the library that allot uses. Merges span spaces, digits
and line ends, so that a text split elsewhere has other ids.

smollm2.json: with a folder of SmolLM2-135M-Instruct's tokenizer as argument, ids of the same texts by its
tokenizer.json with the pre-tokenizer that the published model has (Digits, then ByteLevel)."""
import json, sys, unicodedata
import regex
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

TEXTS = [
    "What is 12 + 30? Reply with only the number.",
    "1234567 12345 x2y3  99 bottles",
    "It's I'M we'll THEY'RE don't D'D",
    "two  spaces   three    four\ttab\n\nlines \n  indented\r\nreturn   ",
    "  leading and trailing  ",
    "def f(x):\n    return x**2 + 3*x - 1  # $4.50 <= ~5 | 6^7",
    "Größe naïve café cafe\u0301 Ωmega 数学は楽しい ١٢٣ ½",
    "emoji 👩‍🚀🎉 and \u00a0nbsp\u2003em",
    " zebra zebra",
    "<|im_start|>user\nHi<|im_end|>\n<think>hm 12</think> <|im_start|",
    "...!!!??? --- ((a))[b]{c}",
    "",
    " ",
    "\n",
    "7",
]
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
WORDS = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
PRE = {
    "gpt-2": [GPT2],
    "smollm": [r"\p{N}", GPT2],
    "qwen2": [WORDS % r"\p{N}"],
    "llama-bpe": [WORDS % r"\p{N}{1,3}"],
    "dbrx": [WORDS % r"\p{N}{1,3}"],
    "default": [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"],
}
CONTROL, USER, UNUSED = 3, 4, 5
ADDED = [("<|endoftext|>", CONTROL), ("<|im_start|>", CONTROL), ("<|im_end|>", CONTROL), ("<think>", USER),
         ("</think>", USER), ("[PAD0]", UNUSED)]


def byte_letters():
    """GPT-2's bytes_to_unicode."""
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table, n = {b: chr(b) for b in keep}, 0
    for b in range(256):
        if b not in table:
            table[b] = chr(256 + n)
            n += 1
    return table


LETTERS = byte_letters()


def split(text, patterns):
    pieces = [text]
    for pattern in patterns:
        out = []
        for piece in pieces:
            end = 0
            for m in regex.finditer(pattern, piece):
                if m.start() > end:
                    out.append(piece[end:m.start()])
                if m.group():
                    out.append(m.group())
                end = m.end()
            if end < len(piece):
                out.append(piece[end:])
        pieces = out
    return pieces


def merged(piece, vocab, ranks, whole):
    word = "".join(LETTERS[b] for b in piece.encode())
    if whole and word in vocab:
        return [vocab[word]]
    parts = list(word)
    while True:
        best = min(((ranks.get((a, b), 10**9), i) for i, (a, b) in enumerate(zip(parts, parts[1:]))), default=(10**9, 0))
        if best[0] == 10**9:
            return [vocab[p] for p in parts]
        parts[best[1]:best[1] + 2] = ["".join(parts[best[1]:best[1] + 2])]


def encode(text, pre, vocab, ranks):
    added = [t for t, kind in ADDED if kind != UNUSED]
    ids = []
    for part in regex.split("(" + "|".join(map(regex.escape, added)) + ")", text):
        if part in added:
            ids.append(vocab[part])
            continue
        part = unicodedata.normalize("NFC", part) if pre == "qwen2" else part
        for piece in split(part, PRE[pre]):
            ids += merged(piece, vocab, ranks, pre == "llama-bpe")
    return ids


def main():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    alphabet = sorted(LETTERS.values())
    corpus = [t for t in TEXTS if "zebra" not in t and "<|" not in t]
    tokenizer.train_from_iterator(corpus * 3, trainers.BpeTrainer(vocab_size=480, initial_alphabet=alphabet, show_progress=False))
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    # In the vocabulary, and no merges make it: only Llama 3's way finds it.
    tokens = [t for t, _ in ADDED[:3]] + tokens + ["Ġzebra"] + [t for t, _ in ADDED[3:]]
    kinds = [dict(ADDED).get(t, 1) for t in tokens]
    vocab = {t: i for i, t in enumerate(tokens)}
    assert len(vocab) == len(tokens)
    ranks = {tuple(m.split(" ")): i for i, m in enumerate(merges)}
    cases = [{"pre": pre, "text": text, "ids": encode(text, pre, vocab, ranks)} for pre in PRE for text in TEXTS]
    with open("pre.json", "w") as f:
        json.dump({"tokens": tokens, "token_type": kinds, "merges": merges, "cases": cases}, f, indent=0, ensure_ascii=False)
        f.write("\n")
    if len(sys.argv) > 1:
        whole = json.load(open(sys.argv[1] + "/tokenizer.json"))
        whole["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": True},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}]}
        theirs = Tokenizer.from_str(json.dumps(whole))
        with open("smollm2.json", "w") as f:
            json.dump([{"text": t, "ids": theirs.encode(t).ids} for t in TEXTS], f, indent=0, ensure_ascii=False)
            f.write("\n")


main()
