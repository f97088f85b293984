// Draws the traffic between ranks as a bar above the map: bytes in flight from their start to their
// wait.
"use strict";

const kWireBand = {top: 40, height: 17};

// Returns runs of rows with the same bytes in flight: [{first, end, bytes}]. A row that waits still
// counts the bytes for which it waits.
function wire_runs_of(program) {
  const change = new Float64Array(program.rows.length + 1), runs = [];
  // Loads carry slices of weights if the ranks store them.
  const carried = ["share", "spread"].concat(program.plan.regions.has("shard") ? ["load"] : []);
  for (const item of program.items) {
    for (const flight of item.flights || []) {
      if (!carried.includes(program.rows[flight.first].op)) continue;
      change[flight.first] += item.bytes;
      change[flight.end] -= item.bytes;
    }
  }
  for (let r = 0, bytes = 0; r < program.rows.length; ++r) {
    bytes += change[r];
    const last = runs[runs.length - 1];
    if (bytes > 0 && last && last.end === r && last.bytes === bytes) last.end = r + 1;
    else if (bytes > 0) runs.push({first: r, end: r + 1, bytes});
  }
  return runs;
}

// Returns the bands' height: a program without traffic has no bar.
function map_top(program) { return kMargins.top + (program.wire.length > 0 ? kWireBand.height + 2 : 0); }

function paint_wire(painter, place) {
  const runs = shown.program.wire, most = runs.reduce((bytes, run) => Math.max(bytes, run.bytes), 0), s = place.scale;
  const x = (row) => (place.x_of(row) - place.left) * s, bottom = kWireBand.top + kWireBand.height;
  for (const run of seen_runs(runs)) {
    painter.box(x(run.first), (bottom - Math.max(1, (kWireBand.height * run.bytes) / most)) * s, x(run.end), bottom * s, stage_paint("transfer"));
  }
}

function write_wire(pen, place) {
  if (shown.program.wire.length === 0) return;
  pen.textAlign = "right";
  pen.fillStyle = inks.muted.text;
  pen.fillText("wire", place.left - 8, kWireBand.top + kWireBand.height / 2 + 0.5);
}

function sent_words(manifest) {
  return [exact_bytes(manifest.sent_bytes), make("small", {}, " to each of " + plural(manifest.ranks - 1, "other rank"))].flat();
}
