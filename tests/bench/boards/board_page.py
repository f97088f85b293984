#!/usr/bin/env python3
"""Writes BOARDS.md: the memory that two fine-tunings would need on a Jetson Orin Nano 8 GB, from
their plans. Nothing on that page is measured.

    python3 tests/bench/boards/board_page.py [BUILD]

Reason: a buyer of a board needs these numbers before the purchase. The SmolLM2 recipe needs its
model: run `make run RECIPE=tools/recipes/smollm2-lora.json` once.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

BENCH = pathlib.Path(__file__).resolve().parent
ROOT = BENCH.parents[2]
BOARD = "orin-nano-8gb"

RESNET18 = {"name": "resnet18", "model": {"family": "resnet", "block": "basic", "units": [2, 2, 2, 2], "width": 64, "stem": "imagenet", "classes": 100,
            "image": [224, 224, 3]}, "data": {"kind": "synthetic"}, "steps": 1, "optimizer": {"name": "sgd", "lr": 0.01, "momentum": 0.9}}
# Each training: its title, its recipe, and its rows (changes of the recipe, text of the row).
TRAININGS = [
    ("ResNet-18 at 224 x 224, all weights, SGD with momentum", RESNET18,
     [({"batch": batch, "backend": backend, **extra}, f"batch {batch}, {words}")
      for batch, backend, extra, words in [(32, "cpu", {}, "processor, f32"), (32, "cuda", {}, "card, f32"), (32, "cuda", {"dtype": "bf16"}, "card, bf16"),
                                           (128, "cuda", {"dtype": "bf16"}, "card, bf16"), (256, "cuda", {"dtype": "bf16"}, "card, bf16")]]),
    ("SmolLM2-135M, LoRA of rank 8, AdamW", json.loads("\n".join(line for line in (ROOT / "tools/recipes/smollm2-lora.json").read_text().splitlines()
                                                               if not line.strip().startswith("//"))),
     [({"sequence": tokens, "backend": backend, **extra}, f"{tokens} tokens, {words}")
      for tokens, backend, extra, words in [(512, "cpu", {}, "processor, f32"), (512, "cuda", {}, "card, f32"), (512, "cuda", {"dtype": "bf16"}, "card, bf16"),
                                            (2048, "cuda", {"dtype": "bf16"}, "card, bf16")]]),
]


def mebibytes(count):
    return f"{count / 2**20:,.0f}"


def fitted(build, recipe):
    with tempfile.NamedTemporaryFile("w", suffix=".json", dir=ROOT / "tools/recipes", prefix=".board-") as file:
        json.dump(recipe, file)
        file.flush()
        answer = subprocess.run([build / "reprise", "fit", file.name, "--board", BOARD, "--json"], capture_output=True, text=True)
    if answer.returncode not in (0, 3):
        sys.exit(f"board_page: {answer.stderr.strip()}")
    return json.loads(answer.stdout)


def row(words, answer):
    board = answer["board"]
    share = board["host_share"]
    smaller = "; ".join(f"{mebibytes(each['budget'])} (+{100 * each['extra_forward_cost']:.0f}%)" for each in answer["smaller_budgets"])
    if not answer["fits"]:
        return f"| {words} | does not fit | {mebibytes(share['room_bytes'])} | | | |"
    beside = f"{mebibytes(share['system_bytes'])} + {mebibytes(share['headroom_bytes'])} + {mebibytes(share['staging_bytes'])}"
    return (f"| {words} | {mebibytes(answer['planned_bytes'])} | {mebibytes(share['room_bytes'])} | {beside} | {smaller} | "
            f"{board['least_seconds']:.2f} s, {board['bound']} |")


def main():
    build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build").resolve()
    text = ["# Two fine-tunings on a Jetson Orin Nano 8 GB, before it is bought", "",
            "**Every figure here is planned or computed, none is measured.** `tests/bench/boards/board_page.py` writes this page (`reprise fit`). MiB.", "",
            "- **plan**: the arena, which is all that the training itself takes; the program proves it before the first step.",
            "- **room**: the most that an arena may take there, of 7,620 MiB that Linux sees (`tools/boards/orin-nano-8gb.json`).",
            "- **beside**: what stays out of the arena: the system with CUDA's context and kernels (assumed, with its source in that file), what",
            "  stays free so that the board does not freeze, and pinned memory for copies.",
            "- **smaller plans**: three budgets below, each with the work that recomputing adds.",
            "- **a step**: no step is faster by the board's flops and bytes, in what binds it. A real one is slower: kernels reach a part of these rates.", ""]
    for name, recipe, rows in TRAININGS:
        text += [f"## {name}", "", "| | plan | room | beside: system + free + copies | smaller plans | a step, at least |", "|---|---|---|---|---|---|"]
        for changes, words in rows:
            changed = {key: value for key, value in {**recipe, **changes}.items() if key != "budget"}
            text.append(row(words, fitted(build, changed)))
        text.append("")
    (ROOT / "tests/bench/pages/BOARDS.md").write_text("\n".join(text).rstrip() + "\n")


if __name__ == "__main__":
    main()
