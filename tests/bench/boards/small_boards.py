#!/usr/bin/env python3
"""Writes SMALL_BOARDS.md: the memory that the nets of tools/recipes/small need on a
microcontroller, from their plans. Nothing on that page is measured.

    python3 tests/bench/boards/small_boards.py [BUILD]

Reason: a buyer of a microcontroller needs these numbers before the purchase. `make bench-boards`
builds what this needs and runs it.
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import textwrap

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "peers"))
import page_tables

BENCH = pathlib.Path(__file__).resolve().parent
ROOT = BENCH.parents[2]
RECIPES = ROOT / "tools/recipes/small"

MOMENTUM = {"optimizer": {"name": "sgd", "lr": 0.01, "momentum": 0.9}}
PLAIN = {"optimizer": {"name": "sgd", "lr": 0.01}}
RELEASED = {**PLAIN, "gradient_release": True}
EIGHT_BITS = {"optimizer": {**MOMENTUM["optimizer"], "states": "8bit"}}
EIGHT_BITS_RELEASED = {**EIGHT_BITS, "gradient_release": True}
ADAMW = {"optimizer": {"name": "adamw", "lr": 0.001}}
BF16 = {"dtype": "bf16"}
BF16_WEIGHTS = {**BF16, "trained": {"storage": "bf16"}}

# Each net and how it is trained; the page has a row for each of three budgets.
NETS = [("ResNet8", "resnet8", [("momentum", MOMENTUM), ("plain, released", RELEASED)]),
        ("DS-CNN", "ds-cnn", [("momentum", MOMENTUM), ("plain, released", RELEASED)]),
        ("MobileNetV1-0.25", "mobilenet-v1-0.25", [("momentum", MOMENTUM), ("plain, released", RELEASED)]),
        ("Deep-AE", "deep-ae", [("momentum", MOMENTUM), ("plain, released", RELEASED)]),
        ("MobileNetV2-0.35", "mobilenet-v2-0.35", [("momentum", MOMENTUM), ("plain, released", RELEASED), ("the same, bf16", {**RELEASED, **BF16}),
                                                  ("bf16, weights too", {**RELEASED, **BF16_WEIGHTS})]),
        ("ResNet-18", "resnet18-cifar", [("momentum", MOMENTUM), ("plain, released", RELEASED)])]

# Each required size in bytes, of the arena or of what feature_map_budget bounds, with updates that
# may fit it.
ASKED = [("ResNet8, full update in f32", "resnet8", 750000, [("momentum", MOMENTUM), ("momentum in 8 bits, released", EIGHT_BITS_RELEASED),
                                                             ("plain", PLAIN), ("plain, released", RELEASED)]),
         ("DS-CNN, full update in f32", "ds-cnn", 256 * 1024, [("momentum", MOMENTUM), ("plain", PLAIN), ("plain, released", RELEASED)]),
         ("MobileNetV2-0.35, full update in f32", "mobilenet-v2-0.35", 4000000, [("momentum", MOMENTUM), ("plain", PLAIN), ("plain, released", RELEASED)]),
         ("MobileNetV2-0.35, activations in bf16", "mobilenet-v2-0.35", 2200000, [("plain, released", {**RELEASED, **BF16}),
                                                                                 ("the same, weights in bf16", {**RELEASED, **BF16_WEIGHTS})]),
         ("ResNet-18, activations alone", "resnet18-cifar", 737719, [("f32", {**PLAIN, "feature_map_budget": 737719}),
                                                                     ("bf16", {**PLAIN, **BF16, "feature_map_budget": 737719})])]

BLOCKS = ["features.?.*", "features.10.*", "features.11.*"]
SPARSE = BLOCKS + ["features.1?.conv.?.1.weight", "features.1?.conv.1.0.weight", "features.1?.conv.2.weight", "features.1?.conv.3.weight", "features.18.*"]
# MobileNetV2-0.35 with less than all weights trained, or with a larger state.
CHOICES = [("all weights, momentum", MOMENTUM), ("all weights, plain, released", RELEASED), ("4 micro-batches to a step (`accumulate`), plain", {**PLAIN, "accumulate": 4}),
           ("AdamW", ADAMW), ("AdamW, moments in 8 bits (`states`)", {"optimizer": {**ADAMW["optimizer"], "states": "8bit"}}),
           ("momentum in 8 bits", EIGHT_BITS), ("the same, released", EIGHT_BITS_RELEASED),
           ("a new head on a frozen trunk: `features.*` frozen", {**MOMENTUM, "freeze": ["features.*"]}),
           ("biases and the head: `features.*.weight` frozen", {**MOMENTUM, "freeze": ["features.*.weight"]}),
           ("blocks 12 to 18 and the head", {**MOMENTUM, "freeze": BLOCKS}),
           ("sparse: of blocks 12 to 17 the biases and the first convolution, and the head", {**MOMENTUM, "freeze": SPARSE}),
           ("the same, plain, released", {**RELEASED, "freeze": SPARSE})]


def recipe_of(net, changes):
    text = (RECIPES / f"{net}.json").read_text()
    recipe = json.loads("\n".join(line for line in text.splitlines() if not line.startswith("//")))
    return {**recipe, **changes}


class Reprise:
    """Runs reprise's commands with --json on a recipe, which it writes to a file of its own."""

    def __init__(self, build, folder):
        self.program, self.file = build / "reprise", pathlib.Path(folder) / "recipe.json"

    def ask(self, command, recipe, *options):
        self.file.write_text(json.dumps(recipe))
        answer = subprocess.run([self.program, command, self.file, "--json", *options], capture_output=True, text=True)
        if answer.returncode not in (0, 3) or not answer.stdout:
            sys.exit(f"small_boards: {recipe['name']}: {answer.stderr.strip()}")
        return json.loads(answer.stdout)

    def least(self, recipe):
        options = () if "feature_map_budget" in recipe else ("--budget", "1")
        return self.ask("fit", recipe, *options)["smallest_budget"]

    def plan(self, recipe, budget=None):
        return self.ask("audit", recipe, *(() if budget is None else ("--budget", str(budget))))


def grouped(count):
    return f"{count:,}"


def region(plan, name):
    return sum(each["planned_bytes"] for each in plan["regions"] if each["name"] == name)


def figures(plan):
    state, gradients = region(plan, "state"), region(plan, "carried")
    return [grouped(plan["planned_bytes"]), grouped(state), grouped(gradients), grouped(plan["planned_bytes"] - state - gradients),
            f"{100 * plan['extra_forward_cost']:.0f}%"]


def budgets_of(reprise):
    rows = []
    for words, net, updates in NETS:
        for update, changes in updates:
            recipe = recipe_of(net, changes)
            whole, least = reprise.plan(recipe), reprise.least(recipe)
            half = (whole["planned_bytes"] + least) // 2
            for budget, plan in [("none", whole), (grouped(half), reprise.plan(recipe, half)), ("the least", reprise.plan(recipe, least))]:
                rows.append([words, update, budget, *figures(plan)])
    return page_tables.table(["net", "update", "budget", "arena", "state", "gradients", "activations, scratch", "work"], rows)


def live_at_peak(words, plan, most=6):
    live = sorted(plan["peak"]["live"], key=lambda slot: -slot["bytes"])
    text = f"- {words}: " + ", ".join(f"`{slot['name']}` {grouped(slot['bytes'])}" for slot in live[:most]) + f", and {len(live) - most} smaller ones"
    return textwrap.wrap(text, 118, subsequent_indent="  ", break_on_hyphens=False)


def asked_of(reprise):
    rows, peaks = [], []
    for words, net, asked, updates in ASKED:
        for update, changes in updates:
            recipe = recipe_of(net, changes)
            of_feature_maps = "feature_map_budget" in recipe
            least = reprise.least({**recipe, "feature_map_budget": 1} if of_feature_maps else recipe)
            budget = max(least, asked)  # more memory means less work
            plan = reprise.plan({**recipe, "feature_map_budget": budget}) if of_feature_maps else reprise.plan(recipe, budget)
            rows.append([words, update, grouped(asked), page_tables.judged(grouped(least), least <= asked, "{}"), f"{100 * plan['extra_forward_cost']:.0f}%"])
            if least > asked:
                peaks += live_at_peak(f"{words}; {update}", plan)
    return page_tables.table(["what", "update", "asked", "least", "work"], rows) + peaks


def choices_of(reprise):
    rows = []
    for words, changes in CHOICES:
        recipe = recipe_of("mobilenet-v2-0.35", changes)
        rows.append([words, *figures(reprise.plan(recipe, reprise.least(recipe)))])
    return page_tables.table(["trained", "least arena", "state", "gradients", "activations, scratch", "work"], rows)


def main():
    build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build").resolve()
    with tempfile.TemporaryDirectory() as folder:
        reprise = Reprise(build, folder)
        text = ["# Six nets in a microcontroller's memory, before it is bought", "",
                "**Every figure here is planned, none is measured.** `make bench-boards` writes this page. Bytes; batch 1; `\"core\": \"small\"`.", "",
                "- **budget**: none (as much as the plan wants), half-way down to the least one that fits, and that.",
                "- **arena**: all that the training itself takes; it is state + gradients that outlive a row + activations and scratch. A stack and the",
                "  program's own data lie beside it (`reprise fit --board`).",
                "- **work**: what recomputing adds to a step.",
                "- **momentum**, **plain**: SGD with and without it. **released**: `\"gradient_release\": true`, each weight is updated after its gradient's",
                "  last write, so that no gradients are kept. **bf16**: `dtype`, activations and their gradients.", "",
                "The nets are `tools/recipes/small`. Batch-norm at batch 1 normalises by its one image's pixels; Deep-AE has layer-norm in its place.", "",
                "## Three budgets", "", *budgets_of(reprise),
                "## What was asked", "", "Of ResNet-18 `feature_map_budget` bounds boundaries, tapes, gradients of activations and scratch, not the 11 million weights.", "",
                "**Bold** is missed. **work** is that of a plan of as many bytes as were asked, of the least one where that is more. Below the table",
                "stands what is largest at the peak of each that is missed.", "",
                *asked_of(reprise), "",
                "ResNet-18 in f32 is beyond any schedule of whole maps: a block of its first stage has four of 262,144 bytes at once while a convolution",
                "goes backward, the block's input, the gradient of its sum, which the shortcut reads, and the convolution's two gradients.", "",
                "So is MobileNetV2-0.35 in 2,200,000 bytes with weights in f32: they leave room for one map of `features.2`, whose 48 channels of 64 x 64",
                "take 393,216 bytes in bf16, and a batch-norm there goes backward over two, its input and a gradient.", "",
                "## MobileNetV2-0.35 with less than all of it trained", "", *choices_of(reprise)[:-1]]
    (ROOT / "tests/bench/pages/SMALL_BOARDS.md").write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
