"""Tables of the pages that benchmarks write: NETS.md, PEERS.md. What misses its aim is bold."""


def table(head, rows):
  return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(row) + " |" for row in rows), ""]


def judged(value, holds, form):
  return form.format(value) if holds else f"**{form.format(value)}**"
