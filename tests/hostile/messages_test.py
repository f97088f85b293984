#!/usr/bin/env python3
"""Gives every option that takes a text, of every subcommand and of the training program, inputs
that are no file of its kind.

Each answer must be one line on stderr that names the input, without a library's message, and status
1, 2 or 3. Warnings and lines of progress do not count. Options and subcommands come from --help, so
that a new one is tried automatically; a new subcommand needs a line in BASE. messages_test.sh runs
it with some of the inputs for each option; as messages_test.py SUBCOMMAND... (or recipes) it tries
these with all inputs and prints every answer.
"""
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
REPRISE = os.path.join(BUILD, "reprise")
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RAW = re.compile(r"std::|basic_string|json\.exception|filesystem error|_M_|terminate called|what\(\)|bad_alloc|stoi|stoul|bad_cast|bad_optional|bad_variant|"
                 r"map::at|vector::|locale::|iostream error|basic_ios|fault of this program|Assertion|assertion failed")
PROGRESS = re.compile(r".*, \d+ s$|.*\d+/\d+ .*left$|measuring ")
SECONDS = 60

RECIPE = {"name": "rn", "model": {"family": "resnet", "block": "basic", "units": [1, 1, 1], "width": 8, "stem": "cifar", "classes": 5, "image": [12, 12, 3]},
          "data": {"kind": "synthetic"}, "batch": 4, "steps": 2, "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9}}
GPT = {"name": "gpt", "model": {"family": "gpt2", "vocab_size": 256, "n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2},
       "data": {"kind": "synthetic"}, "batch": 2, "steps": 2, "optimizer": {"name": "adamw", "lr": 0.003}}


def run(words, folder=None):
    folder = folder or WORK
    try:
        done = subprocess.run([REPRISE] + words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=SECONDS, cwd=folder,
                              env={**os.environ, "XDG_CACHE_HOME": os.path.join(folder, "cache"), "CXX": "false"})
    except subprocess.TimeoutExpired:
        return None, "", "no answer after %d s" % SECONDS
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


def run_alone(words):
    """Runs a command in a copy of the folder, because its output may replace the input of another
    command."""
    folder = tempfile.mkdtemp(dir=COPIES)
    shutil.copytree(WORK, folder, dirs_exist_ok=True)
    try:
        return run(words, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def help_of(words):
    status, out, err = run(words + ["--help"])
    assert status == 0, err
    return out


def arguments_of(command):
    """Returns the names of positionals, and of options that take a text."""
    positionals, options = [], []
    for line in help_of([command]).splitlines():
        match = re.match(r"  ([A-Z]+) TEXT", line)
        if match:
            positionals.append(match[1])
        match = re.match(r"  ((?:-\w,)?--[a-z-]+\S*) TEXT", line)
        if match:
            options.append(match[1].split(",")[-1])
    return positionals, options


def write(name, content):
    path = os.path.join(WORK, name)
    with open(path, "wb" if isinstance(content, bytes) else "w") as file:
        file.write(content)
    return path


def make_inputs():
    """Writes the valid files that the command lines start from."""
    write("r.json", json.dumps(RECIPE))
    write("g.json", json.dumps(GPT))
    write("p.csv", "id,lower,upper,size\na,0,1,4\n")
    write("sample.json", json.dumps({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}))
    os.mkdir(os.path.join(WORK, "model"))
    # GPT-2's alphabet of bytes.
    characters = [chr(c) for c in (*range(33, 127), *range(161, 173), *range(174, 256), *range(256, 324))]
    tokenizer = {"version": "1.0", "added_tokens": [{"id": 256, "content": "<|e|>", "single_word": False, "lstrip": False, "rstrip": False,
                                                     "normalized": False, "special": True}],
                 "normalizer": None, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}, "post_processor": None,
                 "decoder": {"type": "ByteLevel"}, "model": {"type": "BPE", "vocab": {c: n for n, c in enumerate(characters)}, "merges": []}}
    write("tokenizer.json", json.dumps(tokenizer))
    write("model/tokenizer.json", json.dumps(tokenizer))
    write("model/tokenizer_config.json", json.dumps({"eos_token": "<|e|>"}))
    write("model/chat_template.jinja", "{% for m in messages %}{{ m.role + m.content + '<|e|>' }}{% endfor %}")
    write("model/config.json", json.dumps({"model_type": "llama", "vocab_size": 257, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
                                           "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 64}))
    shutil.copy(os.path.join(ROOT, "tests/golden/onnx/resnet.onnx"), os.path.join(WORK, "net.onnx"))
    for words in (["plan", "r.json", "-o", "made"], ["plan", "r.json", "-o", "filed", "--binary"], ["plan", "g.json", "-o", "gpt", "--binary"],
                  ["chain", "r.json", "-o", "chain.json"], ["train", "filed/plan.bin", "--save", "snap", "--quiet"], ["chat", "model", "sample.json"], ["tokenize", "tokenizer.json"],
                  ["import", "net.onnx", "-o", "net.json"]):
        status, _, err = run(words)
        assert status == 0, (words, err)


# Arguments that each subcommand needs in addition to the one that is tried.
BASE = {
    "plan": ["r.json", "-o", "out"], "profile": ["r.json", "-o", "out.json"], "fit": ["r.json"], "compare": ["r.json"], "audit": ["r.json"],
    "chain": ["r.json"], "name": ["r.json"], "schedule": ["chain.json", "--memory", "1MiB"], "export": ["r.json", "--snapshot", "snap"],
    "bank": ["r.json", "--snapshot", "snap", "-o", "bank.bin"], "pack": ["p.csv"], "doctor": [], "tune": [], "recipe": [],
    "parameters": ["r.json"], "train": ["filed/plan.bin"], "chat": ["model", "sample.json"], "tokenize": ["tokenizer.json"],
    "detokenize": ["tokenizer.json"], "rows": ["r.json"], "kernels": [], "import": ["net.onnx", "-o", "net.json"],
}
# Option -> the options that must be given together with it.
BESIDE = {"--html": [], "--svg": ["--sweep"], "--models": ["--table"], "--max-growth": ["--gate", "made/manifest.json"], "--trace-steps": ["--trace", "t.json"],
          "--predict-to": ["--predict", "p.csv"], "--pressure-file": ["--pressure", "10"], "--save-every": ["--save", "kept"],
          "--system": ["--chat"], "--onnx": [], "--init-skip": ["--init", "snap/model.safetensors"]}
# MISSING: a path at which there is no file. OUTPUTS: options whose value is an output file or
# folder. TEXTS: options and arguments whose value is not the path of a file.
MISSING = "no/such/file"
OUTPUTS = {"-o", "--output", "--actions", "--svg", "--html", "--trace", "--log", "--tensorboard", "--manifest", "--save", "--predict-to", "--spill", "--streamed",
           "--safetensors", "--gguf", "--adapter", "--onnx"}
TEXTS = {"--prompt", "--system", "--init-skip", "--freeze", "--train", "NAME", "SIZE", "--peers"}


def hostile_inputs():
    """Returns pairs of a name of the kind and a path."""
    garbage = bytes((i * 7919 + 13) % 256 for i in range(4000))
    kinds = [("missing", MISSING), ("under a file", "r.json/x"), ("a folder", "folder"), ("empty", write("empty", b"")), ("garbage", write("garbage", garbage)),
             ("zeros", write("zeros", bytes(4000))), ("text", write("text.txt", "some words\n")), ("list", write("list.json", "[]")),
             ("object", write("object.json", "{}")), ("null", write("null.json", "null")), ("a long name", "n" * 300), ("no name", "")]
    os.makedirs(os.path.join(WORK, "folder"), exist_ok=True)
    return [(kind, os.path.relpath(path, WORK) if os.path.isabs(path) else path) for kind, path in kinds]


def truncated():
    kinds = []
    for name in ("r.json", "made/manifest.json", "filed/plan.bin", "snap/model.safetensors", "chain.json", "tokenizer.json"):
        with open(os.path.join(WORK, name), "rb") as file:
            content = file.read()
        kinds.append(("half of " + name, os.path.relpath(write("half-" + name.replace("/", "-"), content[:len(content) // 2]), WORK)))
    return kinds


def seeks_file(line):
    """True if the argument is an input file: a missing file fails with status 1, and not because a
    word or number was expected."""
    status, _, err = run_alone(line[3])
    return line[1] not in OUTPUTS and status == 1 and not re.search(r"^(reprise \w+: )?--[a-z-]+: must be (bytes|one of|an integer)", err)


def command_lines(commands):
    """Yields groups of (kind, option, path, words), one group for each argument."""
    inputs = hostile_inputs() + truncated()
    for command in commands:
        positionals, options = arguments_of(command)
        for place, positional in enumerate(positionals):
            if positional in TEXTS:
                continue
            group = []
            for kind, path in inputs:
                words = list(BASE[command])
                words[place:place + 1] = [path]
                group.append((kind, positional, path, [command] + words))
            yield group
        for option in options:
            if option in TEXTS:
                continue
            words = list(BASE[command])
            for own in [option] + (["-o"] if option == "--output" else []):
                if own in words:
                    at = words.index(own)
                    del words[at:at + 2]
            words += BESIDE.get(option, [])
            yield [(kind, option, path, [command] + words + [option + "=" + path]) for kind, path in inputs]



def recipes(inputs):
    """Yields groups of command lines with recipes whose fields name files."""
    fields = [("data.path", {"data": {"kind": kind, "path": None}}) for kind in
              ("idx", "image_folder", "csv", "tensors")] + \
             [("init.from", {"init": {"from": None}}), ("model.graph", {"model": {"graph": None}}),
              ("model.huggingface", {"model": {"huggingface": None}}), ("model.gguf", {"model": {"gguf": None}})]
    gpt = [("data.path", {"data": {"kind": kind, "path": None}}) for kind in ("text", "tokens")]
    for base, patches in ((RECIPE, fields), (GPT, gpt)):
        for number, (field, patch) in enumerate(patches):
            group = []
            for index, (kind, path) in enumerate(inputs):
                recipe = {**base, **json.loads(json.dumps(patch).replace("null", json.dumps(path)))}
                name = "%s-%d-%d.json" % (base["name"], number, index)
                write(name, json.dumps(recipe))
                words = ["plan", name, "-o", "out"] if index % 2 == 0 else ["train", name, "--steps", "1"]
                group.append((kind, field, os.path.basename(path) or name, words))
            yield group


def what_is_wrong(option, path, status, out, err):
    lines = [line for line in err.splitlines() if not line.startswith("warning: ") and not PROGRESS.match(line)]
    if status is None:
        return err
    if status < 0 or status > 128:
        return "signal %d" % (-status if status < 0 else status - 128)
    if RAW.search(err) or RAW.search(out):
        return "a library's words"
    if re.search(r"[\x00-\x08\x0b-\x1f\x7f]", err):
        return "control characters"
    if status == 0:
        return ""  # an output that can be written, or an option that accepts any text
    if status not in (1, 2, 3):
        return "status %d" % status
    if len(lines) != 1:
        return "%d lines" % len(lines)
    if any(len(line) > 1500 for line in lines):
        return "a line of %d bytes" % max(map(len, lines))
    named = os.path.basename(path.rstrip("/"))[:50]
    if status == 1 and option not in OUTPUTS and named not in lines[0] and option.strip("-") not in lines[0]:
        return "names neither %s nor %s" % (named, option)
    missing = path in (MISSING, "r.json/x") and option not in OUTPUTS
    if missing and status == 1 and not re.search(r"[Nn]o such file|Not a directory|is not there|there is no|missing|goes with|neither|must be|is no |is unknown|trains no|leave it out", lines[0]):
        return "does not say that it is missing"
    return ""


def try_all(groups, shows):
    """Runs the groups; only one input of a group is tried if its argument is no file. Returns the
    number of wrong answers and of all answers."""
    failures = count = 0
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        groups = list(groups)
        chosen = [group if shows else group[:1] + [group[(number + step) % len(group)] for step in (1, 4, 7, 10)] if seeks else group[:1]
                  for number, (group, seeks) in enumerate(zip(groups, pool.map(lambda group: seeks_file(group[0]), groups)))]
        lines = [line for group in chosen for line in group]
        for (kind, option, path, words), (status, out, err) in zip(lines, pool.map(lambda line: run_alone(line[3]), lines)):
            wrong = what_is_wrong(option, path, status, out, err)
            if wrong or shows:
                print("%s%s: %s (status %s): %s" % (wrong + ": " if wrong else "", " ".join(words)[:200], kind, status, err.strip()[:600] or out.strip()[:100]))
            failures += bool(wrong)
            count += 1
    return failures, count


def main():
    shows = len(sys.argv) > 1
    make_inputs()
    listed = re.findall(r"^  ([a-z]+) ", help_of([]).split("Subcommands:")[1], re.M)
    unknown = [command for command in listed if command not in BASE]
    if unknown:
        print("BASE of tests/hostile/messages_test.py has no line for", *unknown)
        return 1
    chosen = [word for word in sys.argv[1:] if word in listed] or [] if shows else listed
    failures, count = try_all(command_lines(chosen), shows)
    if not shows or "recipes" in sys.argv[1:]:
        more, others = try_all(recipes(hostile_inputs() + truncated()), shows)
        failures, count = failures + more, count + others
    print("%d command lines, %d wrong answers" % (count, failures))
    return 1 if failures or not count else 0


SCRATCH = tempfile.mkdtemp()
WORK, COPIES = os.path.join(SCRATCH, "work"), os.path.join(SCRATCH, "copies")
os.mkdir(WORK)
os.mkdir(COPIES)
try:
    sys.exit(main())
finally:
    shutil.rmtree(SCRATCH, ignore_errors=True)
