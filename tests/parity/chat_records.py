#!/usr/bin/env python3
# Judges how `reprise chat` reads records that contain more than plain texts, against transformers
# (5, and 4 in the folder `transformers-4` of this environment) and trl: tools, named templates,
# template variables, arguments as JSON text, nulls of tables, tokens composed around roles, tokens
# that absorb white space, and texts that spell control tokens. For every published template in trl
# it also judges replies that are written differently once others follow. Reason: a misread record
# would train without an error. The repository contains nothing of trl.
# Usage: tests/parity/chat_records.py BUILD/reprise
#        tests/parity/chat_records.py --theirs FOLDER   (called by this script: ids of the transformers in PYTHONPATH)
#        tests/parity/chat_records.py --goldens         writes tests/golden/chat/added_tokens.json
import importlib.util
import json
import os
import subprocess
import sys
import tempfile

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

kGolden = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "chat", "added_tokens.json")
kSpecials = ["<|im_start|>", "<|im_end|>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>", "<|python_tag|>"]
kTurns = ("{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' + ('[]' if quiet else '') }}{% endif %}")
kRoles = "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] + '<|end|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% else %}{{ eos_token }}{% endif %}"
kCalls = ("{% if tools %}{{ '<|im_start|>system\\n' }}{% for t in tools %}{{ t | tojson }}{% endfor %}{{ '<|im_end|>\\n' }}{% endif %}{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}"
          "{% if m.content %}{{ m.content }}{% endif %}{% for c in m.tool_calls or [] %}{{ c.function.name + ' ' }}{{ c.function.arguments | tojson }}{% endfor %}{{ '<|im_end|>\\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
kTexts = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.arguments if c.function.arguments is string else c.function.arguments | tojson }}{% endfor %}{{ '<|im_end|>' }}{% endfor %}"
kNamed = [{"name": "default", "template": kTurns}, {"name": "tool_use", "template": "{{ 'T:' + tools | tojson }}" + kTurns}]
failures = []


def user(text): return {"role": "user", "content": text}
def says(text, **more): return {"role": "assistant", "content": text, **more}
def calls(arguments, text=""): return says(text, tool_calls=[{"type": "function", "function": {"name": "w", "arguments": arguments}}])


def tool(name, properties):
  return {"type": "function", "function": {"name": name, "description": "Looks “it” up", "parameters": {"type": "object", "properties": properties, "required": []}}}


def without_none(value):
  """Returns a record without its nulls, by trl's own function."""
  from trl.trainer.utils import remove_none_values
  return remove_none_values(value)


# Yields name, template, record, and the record for transformers: None for the same one, "without
# none" for the record without nulls, or the record as a user of transformers would write it.
def cases():
  tools = [tool("w", {"city": {"type": "string"}}), tool("v", {})]
  q = [user("Grüße?"), says("  a\n")]
  nulls = {"tools": [tool("w", {"city": {"type": "string"}, "n": None})], "messages": [user("q"), calls({"city": "Oslo", "n": None})]}
  yield "tools", kCalls, {"tools": tools, "messages": q}, None
  yield "arguments as an object", kCalls, {"tools": tools, "messages": [user("q"), calls({"city": "Osló", "n": [1.5, True, None and 0]})]}, None
  yield "arguments as text, where an object is wanted", kCalls, {"messages": [user("q"), calls('{"city":"Oslo"}')]}, {"messages": [user("q"), calls({"city": "Oslo"})]}
  yield "arguments as text, where a text is taken", kTexts, {"messages": [user("q"), calls('{"city":"Oslo"}')]}, None
  yield "nulls of a table", kCalls, nulls, "without none"
  yield "a template named tool_use, with tools", kNamed, {"tools": tools, "messages": q}, None
  yield "a template named tool_use, without tools", kNamed, {"messages": q}, None
  yield "variables of the template", kTurns + "{{ mood }}", {"messages": q, "chat_template_kwargs": {"mood": "calm"}}, None
  yield "tokens around roles", kRoles, {"messages": [{"role": "system", "content": "s"}, *q, user("r"), says("b")]}, None
  yield "the assistant begins", kTurns, {"messages": [says("Hello"), *q]}, None
  yield "a token that the assistant writes", kTurns, {"messages": [user("q"), says("<|python_tag|>w(1)")]}, None
  yield "a text", kTurns, {"text": "<|im_start|>user\nHi <|python_tag|> <|im_end|>\n<|im_start|>assistant\nHello<|im_end|>"}, None


def byte_tokenizer(specials):
  """Returns a tokenizer with one token for each byte, whose id is the byte, and with added
  tokens."""
  plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
  others = [byte for byte in range(256) if byte not in plain]
  vocabulary = {chr(byte): byte for byte in plain} | {chr(256 + n): byte for n, byte in enumerate(others)}
  backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
  backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
  backend.decoder = decoders.ByteLevel()
  for token in specials:
    (backend.add_special_tokens if token.special else backend.add_tokens)([token])
  return backend


def write_model(folder, template, specials, eos="<|im_end|>"):
  byte_tokenizer(specials).save(os.path.join(folder, "tokenizer.json"))
  with open(os.path.join(folder, "tokenizer_config.json"), "w") as file:
    json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": eos, "chat_template": template}, file)


def theirs(folder):
  """Returns the ids of the record in the folder, by the installed transformers."""
  from transformers import AutoTokenizer
  tokenizer = AutoTokenizer.from_pretrained(folder)
  with open(os.path.join(folder, "theirs.json")) as file:
    record = json.load(file)
  if "text" in record:
    return tokenizer(record["text"], add_special_tokens=False)["input_ids"]
  return tokenizer.apply_chat_template(record["messages"], tools=record.get("tools"), tokenize=True, return_dict=True, **record.get("chat_template_kwargs", {}))["input_ids"]


def theirs_by_version(folder):
  older = {**os.environ, "PYTHONPATH": os.path.join(sys.prefix, "transformers-4")}
  for name, environment in (("transformers 5", os.environ), ("transformers 4", older)):
    run = subprocess.run([sys.executable, os.path.abspath(__file__), "--theirs", folder], capture_output=True, text=True, env=environment)
    yield name, json.loads(run.stdout.splitlines()[-1]) if run.returncode == 0 else run.stderr.strip().splitlines()[-1]


def ours(reprise, model, sample):
  with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
    json.dump(sample, file, ensure_ascii=False)
    file.flush()
    run = subprocess.run([reprise, "chat", model, file.name, "--json"], capture_output=True, text=True)
  return json.loads(run.stdout) if run.returncode == 0 else {"ids": run.stderr.strip(), "text": ""}


def judge(what, good, shown=""):
  print(f"  {'ok  ' if good else 'FAIL'} {what}{'' if good else ': ' + shown}", flush=True)
  if not good:
    failures.append(what)


def judge_records(reprise):
  for name, template, record, given in cases():
    with tempfile.TemporaryDirectory() as folder:
      write_model(folder, template, [AddedToken(s, special=True, normalized=False) for s in kSpecials])
      with open(os.path.join(folder, "theirs.json"), "w") as file:
        json.dump(without_none(record) if given == "without none" else given or record, file)
      mine = ours(reprise, folder, record)["ids"]
      for version, ids in theirs_by_version(folder):
        judge(f"{name}, {version}", mine == ids, f"{mine} for {ids}")


# ---- tokens that absorb white space, match whole words only, or match the normalised text

kFlags = [{}, {"lstrip": True, "rstrip": True}, {"rstrip": True}, {"single_word": True, "lstrip": True}, {"normalized": True}]
kSpaced = ["a", " a ", "\n a\n", "  ", "", "\u00a0a\u3000", "x_", "_x", "é"]


def added_token_cases():
  """Yields pairs of flags with conversations, whose template writes two such tokens around every
  message, and with the ids that tokenizers gives their text."""
  template = "{% for m in messages %}{{ '<s>' + m.content + '<e>' }}{% endfor %}{% if add_generation_prompt %}{{ '<s>' }}{% endif %}"
  for begin in kFlags:
    for end in kFlags:
      tokens = [AddedToken("<s>", special=True, **{"normalized": False, **begin}), AddedToken("<e>", special=True, **{"normalized": False, **end})]
      backend = byte_tokenizer(tokens)
      conversations = [[user(kSpaced[n]), says("b" + kSpaced[(n + 1) % len(kSpaced)])] for n in range(len(kSpaced))]
      texts = ["".join("<s>" + m["content"] + "<e>" for m in one) for one in conversations]
      yield {"template": template, "begin": begin, "end": end, "cases": [{"messages": one, "ids": backend.encode(text, add_special_tokens=False).ids} for one, text in zip(conversations, texts)]}


def judge_added_tokens(reprise):
  good = total = 0
  for one in added_token_cases():
    with tempfile.TemporaryDirectory() as folder:
      write_model(folder, one["template"], [AddedToken("<s>", special=True, **{"normalized": False, **one["begin"]}), AddedToken("<e>", special=True, **{"normalized": False, **one["end"]})], eos="<e>")
      for case in one["cases"]:
        total += 1
        good += ours(reprise, folder, {"messages": case["messages"]})["ids"] == case["ids"]
  judge(f"added tokens that take white space or stand alone: {good} of {total}", good == total)


# ---- replies after the prompts that ask for them

kMarkers = ["<|im_start|>", "<|im_end|>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>", "<s>", "</s>", "<bos>", "<eos>"]
kUnread = {}  # templates that use more than reprise's template language, with the reason


def rendered(tokenizer, template, messages, asks):
  return tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False, add_generation_prompt=asks)


def published_templates():
  folder = os.path.join(importlib.util.find_spec("trl").submodule_search_locations[0], "chat_templates")
  for file in sorted(os.listdir(folder)):
    if file.endswith(".jinja") and not file.endswith("_training.jinja"):
      with open(os.path.join(folder, file), encoding="utf-8") as source:
        yield file[:-len(".jinja")], source.read()


def judge_published(reprise):
  """Requires that every reply is learned after the prompt that transformers renders for it. Its
  text must be the one that transformers renders for a reply that is the last message."""
  from transformers import PreTrainedTokenizerFast
  messages = [user("q1"), says("<think>\nt1\n</think>\n\na1"), user("q2"), says("a2"), user("q3"), says("<think>\nt3\n</think>\n\na3")]
  specials = [AddedToken(s, special=True, normalized=False) for s in kMarkers]
  tokenizer = PreTrainedTokenizerFast(tokenizer_object=byte_tokenizer(specials), bos_token="<bos>", eos_token="<eos>")
  for name, template in published_templates():
    try:
      asked = [rendered(tokenizer, template, messages[:n], True) for n in (1, 3, 5)]
      full = [rendered(tokenizer, template, messages[:n], False) for n in (2, 4, 6)]
    except Exception as error:
      print(f"  left out {name}: {type(error).__name__}: {str(error)[:80]}")
      continue
    with tempfile.TemporaryDirectory() as folder:
      write_model(folder, template, specials, eos="<eos>")
      with open(os.path.join(folder, "tokenizer_config.json"), "w") as file:
        json.dump({"bos_token": "<bos>", "eos_token": "<eos>", "chat_template": template}, file)
      mine = ours(reprise, folder, {"messages": messages})
    if isinstance(mine["ids"], str):
      asks_otherwise = not all(f.startswith(a) for a, f in zip(asked, full))
      judge(f"{name}: refused, and what asks for a reply does not begin it: {mine['ids'][-150:]}", asks_otherwise, mine["ids"])
      continue
    decode = lambda ids: tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    learned = []  # (text of the sample before a learned stretch, text of the stretch)
    ends = mine["begins"][1:] + [len(mine["ids"])]
    for begin, end in zip(mine["begins"], ends):
      at = begin
      while at < end:
        first = at
        while at < end and mine["labels"][at] != -100:
          at += 1
        if at > first:
          learned.append((decode(mine["ids"][begin:first]), decode(mine["ids"][first:at])))
        at = max(at, first + 1)
    found = [any(before == a and f.startswith(a) and (f[len(a):] == said or f[len(a):].startswith(said) and said.strip()) for before, said in learned) for a, f in zip(asked, full)]
    judge(f"{name}: every reply behind what asks for it, {len(mine['begins'])} samples", all(found) and len(learned) == 3, f"{found} {learned} {asked}")


def main(arguments):
  if arguments[:1] == ["--theirs"]:
    print(json.dumps(theirs(arguments[1])))
    return
  if arguments[:1] == ["--goldens"]:
    with open(kGolden, "w", encoding="utf-8") as file:
      file.write("[\n" + ",\n".join(json.dumps(one, ensure_ascii=False) for one in added_token_cases()) + "\n]\n")
    return
  judge_records(arguments[0])
  judge_added_tokens(arguments[0])
  judge_published(arguments[0])
  if failures:
    sys.exit(f"{len(failures)} comparisons failed")


if __name__ == "__main__":
  main(sys.argv[1:])
