"""Builds the tables of the pages that benchmarks write (NETS.md, PEERS.md). A value that misses its
aim is bold."""


def line(cells):
  return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def table(head, rows):
  return [line(head), "|" + "---|" * len(head), *map(line, rows), ""]


def judged(value, holds, form):
  return form.format(value) if holds else f"**{form.format(value)}**"
