// Draws the axes of the map: bands of stages and links above, rows below, addresses at the left,
// and lines across it.
"use strict";

const kMargins = {left: 78, right: 12, top: 44, bottom: 24};
const kStageBand = {top: 2, height: 17}, kLinkBand = {top: 21, height: 17};
const kFont = "11px system-ui, sans-serif";

// Returns runs of consecutive rows with the same stage, or link: [{first, end, value}].
function runs_of(rows, key) {
  const runs = [];
  rows.forEach((row, r) => {
    const last = runs[runs.length - 1];
    if (last && last.value === row[key]) last.end = r + 1; else runs.push({first: r, end: r + 1, value: row[key]});
  });
  return runs;
}

function bands_of(program) {
  program.bands = program.bands || {stages: runs_of(program.rows, "stage"), links: runs_of(program.rows, "link")};
  return program.bands;
}

// True if the visible runs are narrower than four pixels on average, so that drawing them would be
// only noise.
function narrow_runs(runs, place) { return seen_runs(runs).length > place.width / 4; }

function seen_runs(runs) { return runs.filter((run) => run.end > view.first && run.first < view.end); }

function paint_bands(painter, place) {
  const bands = bands_of(shown.program), s = place.scale, x = (row) => (place.x_of(row) - place.left) * s;
  const gap = (run) => (x(run.end) - x(run.first) > 4 ? 1 : 0);
  for (const run of seen_runs(bands.stages)) {
    painter.box(x(run.first), kStageBand.top * s, x(run.end) - gap(run), (kStageBand.top + kStageBand.height) * s,
                stage_paint(run.value), run.value === "recomputed" ? "stripes" : "none");
  }
  const count = shown.plan.links.length;
  if (narrow_runs(bands.links, place) && shown.colour !== "link") {
    painter.box(x(0), kLinkBand.top * s, x(shown.program.rows.length), (kLinkBand.top + kLinkBand.height) * s, inks.odd);
    return;
  }
  seen_runs(bands.links).forEach((run) => {
    const index = link_index(shown.plan, run.value);
    const paint = shown.colour === "link" ? link_colour_of(index, count) : index % 2 ? inks.even : inks.odd;
    painter.box(x(run.first), kLinkBand.top * s, x(run.end) - gap(run), (kLinkBand.top + kLinkBand.height) * s, paint);
  });
}

const stage_paints = new Map();
function stage_paint(stage) {
  if (!stage_paints.has(stage)) stage_paints.set(stage, colour(kStageColours[stage] || "#999999"));
  return stage_paints.get(stage);
}

const link_paints = new Map();
function link_colour_of(index, count) {
  const key = index + "/" + count;
  if (!link_paints.has(key)) link_paints.set(key, link_colour(Math.max(0, index), count));
  return link_paints.get(key);
}

function link_index(plan, name) {
  plan.link_indices = plan.link_indices || new Map(plan.links.map((link, i) => [link, i]));
  return plan.link_indices.has(name) ? plan.link_indices.get(name) : -1;
}

// Returns the background of each column: the plot's colour with a slight tint of the stage's.
function ground_of(place) {
  const line = new Painter(Math.round(place.width * place.scale), 1), s = place.scale;
  line.clear(new Uint32Array(line.width).fill(inks.plot.word));
  for (const run of seen_runs(bands_of(shown.program).stages)) {
    line.box((place.x_of(run.first) - place.left) * s, 0, (place.x_of(run.end) - place.left) * s, 1, stage_tint(run.value));
  }
  line.settle();
  return line.words;
}

function stage_tint(stage) { return mixed(inks.plot, stage_paint(stage), shown.dark ? 0.1 : 0.13); }

function write_bands(pen, place) {
  const bands = bands_of(shown.program);
  const write = (run, band, text, ink) => {
    const left = Math.max(place.x_of(run.first), place.left), right = Math.min(place.x_of(run.end), place.left + place.width);
    const fitted = fitted_text(pen, text, right - left - 8);
    if (fitted) { pen.fillStyle = ink; pen.fillText(fitted, left + 4, band.top + band.height / 2 + 0.5); }
  };
  pen.textAlign = "left";
  for (const run of seen_runs(bands.stages)) {
    if (run.value === "recomputed") { write_on_stripes(pen, place, run); continue; }
    const room = Math.min(place.x_of(run.end), place.left + place.width) - Math.max(place.x_of(run.first), place.left) - 8;
    const text = room > 12 && [run.value, kShortStages[run.value]].find((word) => word && text_width(pen, word) < room);
    if (text) write(run, kStageBand, text, stage_paint(run.value).light ? "#111111" : "#ffffff");
  }
  if (narrow_runs(bands.links, place)) return;
  for (const run of seen_runs(bands.links)) {
    const paint = shown.colour === "link" ? link_colour_of(link_index(shown.plan, run.value), shown.plan.links.length) : inks.odd;
    write(run, kLinkBand, String(run.value), shown.colour === "link" ? (paint.light ? "#111111" : "#ffffff") : inks.ink.text);
  }
}

function write_on_stripes(pen, place, run) {
  const left = Math.max(place.x_of(run.first), place.left), right = Math.min(place.x_of(run.end), place.left + place.width);
  const text = right - left > 24 && ["recomputed", "recomp.", "re"].find((word) => text_width(pen, word) < right - left - 14);
  if (!text) return;
  pen.fillStyle = stage_paint("recomputed").text;
  pen.fillRect(left + 3, kStageBand.top + 2, text_width(pen, text) + 8, kStageBand.height - 4);
  pen.fillStyle = "#111111";
  pen.fillText(text, left + 7, kStageBand.top + kStageBand.height / 2 + 0.5);
}

// Widths of texts in kFont, each measured once.
const text_widths = new Map();
function text_width(pen, text) {
  if (!text_widths.has(text)) {
    if (text_widths.size > 20000) text_widths.clear();
    text_widths.set(text, pen.measureText(text).width);
  }
  return text_widths.get(text);
}

// Returns a name, or its longest end that fits and starts at a dot or a number: "layer2.0.conv1",
// "\u20260.conv1", "\u2026conv1". Gradients keep their d( ).
function fitted_text(pen, text, width) {
  if (width < 10) return "";
  const name = short_name(text, 60), fits = (words) => text_width(pen, words) <= width;
  if (fits(name)) return name;
  const [, head, body] = name.match(/^(d\()?(.*)$/);
  for (let at = 1; at < body.length; ++at) {
    const begins = body[at - 1] === "." || body[at - 1] === "_" || (/\d/.test(body[at]) && !/\d/.test(body[at - 1]));
    const end = begins && (head || "") + "\u2026" + body.slice(at);
    if (end && body.length - at > 1 && fits(end)) return end;
  }
  return "";
}

function step_of(least, bases) {
  for (let power = 1; ; power *= 10) for (const base of bases) if (base * power >= least) return base * power;
}

function draw_row_axis(pen, place) {
  const step = step_of((72 * (view.end - view.first)) / place.width, [1, 2, 5]), bottom = place.top + place.height;
  pen.textAlign = "center";
  for (let row = Math.ceil(view.first / step) * step; row < view.end; row += step) {
    const x = Math.round(place.x_of(row)) + 0.5;
    pen.fillStyle = inks.line.text;
    pen.fillRect(x - 0.5, bottom, 1, 4);
    pen.fillStyle = inks.muted.text;
    const half = text_width(pen, count_words(row)) / 2;
    pen.fillText(count_words(row), Math.min(x, place.left + place.width + kMargins.right - 2 - half), bottom + 13);
  }
  pen.textAlign = "right";
  pen.fillText("row", place.left - 26, bottom + 13);
}

// Draws addresses at multiples of a power of two, in a unit that gives them at most three decimals,
// all of which are shown.
function draw_address_axis(pen, place) {
  let step = kAlignment;
  while ((step * place.height) / (view.high - view.low) < 44) step *= 2;
  const [unit, name] = [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]].find(([size]) => view.high >= size && 8 * step >= size) || [1, "B"];
  const numbers = kFixed[Math.max(0, Math.log2(unit / step))];
  pen.textAlign = "right";
  for (let address = Math.ceil(view.low / step) * step; address <= view.high; address += step) {
    const y = Math.round(place.y_of(address)) + 0.5;
    pen.fillStyle = inks.line.text;
    pen.fillRect(place.left - 5, y - 0.5, 5, 1);
    pen.fillStyle = inks.muted.text;
    if (y > place.top + 4) pen.fillText(numbers.format(address / unit) + " " + name, place.left - 8, y);
  }
}

// Draws a line across the map with its name at the right end.
function draw_level(pen, place, address, text, ink, dashes) {
  const y = Math.round(place.y_of(address)) + 0.5;
  if (address <= view.low || address >= view.high) return;
  pen.strokeStyle = ink;
  pen.setLineDash(dashes);
  pen.lineWidth = 1.5;
  pen.beginPath(); pen.moveTo(place.left, y); pen.lineTo(place.left + place.width, y); pen.stroke();
  pen.setLineDash([]);
  draw_tag(pen, place.left + place.width - 6, y < place.top + 20 ? y + 10 : y - 10, text, ink, "right");
}

function draw_tag(pen, x, y, text, ink, align) {
  const width = text_width(pen, text) + 8, left = align === "right" ? x - width : align === "center" ? x - width / 2 : x;
  pen.globalAlpha = 0.88;
  pen.fillStyle = inks.card.text;
  pen.fillRect(left, y - 8, width, 16);
  pen.globalAlpha = 1;
  pen.fillStyle = ink;
  pen.textAlign = "left";
  pen.fillText(text, left + 4, y + 0.5);
}
