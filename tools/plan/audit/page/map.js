// Draws the map. Boxes are repainted only if the view or the colours have changed; the marks that
// follow the pointer are drawn over them.
"use strict";

const drawing = {painter: null, stale: true, requested: false, place: null, labels: [], times: [], brush: null};

function repaint() { drawing.stale = true; request_drawing(); }

function request_drawing() {
  if (drawing.requested || !shown.program) return;
  drawing.requested = true;
  requestAnimationFrame(draw);
}

function draw(now) {
  const started = performance.now();
  drawing.requested = false;
  advance_glide(now);
  const canvas = element_of("map"), place = place_of(canvas);
  drawing.place = place;
  const pen = canvas.getContext("2d");
  if (drawing.stale) paint(place);
  pen.setTransform(1, 0, 0, 1, 0, 0);
  pen.fillStyle = inks.card.text;
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.putImageData(drawing.painter.image, Math.round(place.left * place.scale), 0);
  pen.setTransform(place.scale, 0, 0, place.scale, 0, 0);
  draw_over(pen, place);
  draw_overview();
  drawing.times.push(performance.now() - started);
  if (drawing.times.length > 600) drawing.times.shift();
}

// Returns the position of the plot on the canvas, in CSS pixels, and the functions between rows,
// addresses and positions.
function place_of(canvas) {
  const scale = shown.printing ? 3 : Math.min(2, devicePixelRatio || 1), box = canvas.getBoundingClientRect();
  const width = Math.max(200, Math.floor(box.width)), height = Math.max(160, Math.floor(box.height));
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    drawing.stale = true;
  }
  const top = map_top(shown.program);
  const place = {left: kMargins.left, top, width: width - kMargins.left - kMargins.right, height: height - top - kMargins.bottom, scale};
  place.x_of = (row) => place.left + ((row - view.first) * place.width) / (view.end - view.first);
  place.y_of = (address) => place.top + ((view.high - address) * place.height) / (view.high - view.low);
  place.row_at = (x) => view.first + ((x - place.left) * (view.end - view.first)) / place.width;
  place.address_at = (y) => view.high - ((y - place.top) * (view.high - view.low)) / place.height;
  return place;
}

function paint(place) {
  const width = Math.round(place.width * place.scale), height = Math.round((place.top + place.height) * place.scale);
  if (!drawing.painter || drawing.painter.width !== width || drawing.painter.height !== height) {
    drawing.painter = new Painter(width, height, Math.max(1, Math.round(place.scale)));
  }
  drawing.stale = false;
  drawing.labels = [];
  drawing.painter.clear(ground_of(place));
  const clip = Math.round(place.top * place.scale);
  paint_whole_life(drawing.painter, place, clip);
  if (shown.mode === "map") for (const item of shown.program.slots) paint_item(drawing.painter, place, item, clip);
  else paint_stack(drawing.painter, place);
  drawing.painter.settle();
  drawing.painter.ground.fill(inks.card.word);
  drawing.painter.words.fill(inks.card.word, 0, clip * width);
  paint_bands(drawing.painter, place);
  paint_wire(drawing.painter, place);
  drawing.painter.settle();
}

// Paints State and gradients, which live in all rows: boxes below two pixels are merged in one
// column, which is then copied to all others.
function paint_whole_life(painter, place, clip) {
  const items = [...shown.program.state, ...shown.program.carried], column = new Painter(1, painter.height), s = place.scale;
  const low = Math.min(painter.height, Math.round(place.y_of(0) * s)), high = Math.max(clip, Math.round(place.y_of(shown.plan.program_base) * s));
  if (low <= high) return;
  column.clear(new Uint32Array(1).fill(inks.plot.word));
  const thin = (item) => ((item.bytes * place.height) / (view.high - view.low)) * s < 2;
  for (const item of items) if (thin(item)) column.box(0, place.y_of(item.address + item.bytes) * s, 1, place.y_of(item.address) * s, item.paint);
  column.settle();
  for (let y = high; y < low; ++y) painter.words.fill(column.words[y], y * painter.width, (y + 1) * painter.width);
  for (const item of items) if (!thin(item)) paint_item(painter, place, item, clip);
}

function paint_item(painter, place, item, clip) {
  const low = item.address, high = low + item.bytes;
  if (item.end <= view.first || item.first >= view.end || high + kAlignment <= view.low || low >= view.high) return;
  const s = place.scale, x0 = (place.x_of(item.first) - place.left) * s, x1 = (place.x_of(item.end) - place.left) * s;
  const y0 = place.y_of(high) * s, y1 = place.y_of(low) * s, gap = x1 - x0 > 5 && y1 - y0 > 5 ? s : 0;
  painter.box(x0, Math.max(clip, y0 + gap), x1 - gap, Math.max(clip, y1), item.paint, item.texture);
  const padded = place.y_of(low + aligned(item.bytes)) * s;
  if (y0 - padded > 1) painter.box(x0, Math.max(clip, padded), x1 - gap, Math.max(clip, y0 + gap), item.paint, "hatch");
  if (item.flights) {
    for (const flight of item.flights) {
      painter.box((place.x_of(flight.first) - place.left) * s, Math.max(clip, y0 + gap), (place.x_of(flight.end) - place.left) * s - gap,
                  Math.max(clip, y1), item.paint, "stripes");
    }
  }
  if (x1 - x0 > 44 * s && y1 - y0 > 13 * s) drawing.labels.push(item);
}

function draw_over(pen, place) {
  pen.font = kFont;
  pen.textBaseline = "middle";
  write_bands(pen, place);
  write_wire(pen, place);
  pen.save();
  pen.beginPath(); pen.rect(place.left, place.top, place.width, place.height); pen.clip();
  if (drawing.labels.length <= 400) for (const item of drawing.labels) write_label(pen, place, item);
  draw_ghosts(pen, place);
  draw_regions(pen, place);
  draw_choice(pen, place);
  pen.restore();
  draw_row_axis(pen, place);
  draw_address_axis(pen, place);
  draw_brush(pen, place);
}

function write_label(pen, place, item) {
  const left = Math.max(place.left, place.x_of(item.first)), right = Math.min(place.left + place.width, place.x_of(item.end));
  const top = Math.max(place.top, place.y_of(item.address + item.bytes)), bottom = Math.min(place.top + place.height, place.y_of(item.address));
  if (bottom - top < 12) return;
  const text = fitted_text(pen, item.name, right - left - 9), two = bottom - top > 30;
  if (!text) return;
  const more = two && [bytes_words(item.bytes) + "  " + kind_words(item.kind),
                       bytes_words(item.bytes)].find((words) => text_width(pen, words) < right - left - 9);
  const middle = two ? top + 11 : (top + bottom) / 2 + 0.5;
  pen.textAlign = "left";
  if (item.texture !== "none" || item.flights) {  // a pattern would cross the letters
    pen.fillStyle = item.paint.text;
    pen.fillRect(left + 2, middle - 7, Math.max(text_width(pen, text), more ? text_width(pen, more) : 0) + 5, more ? 28 : 13);
  }
  pen.fillStyle = item.paint.light ? "#111111" : "#ffffff";
  pen.fillText(text, left + 4, middle);
  if (more) { pen.globalAlpha = 0.8; pen.fillText(more, left + 4, top + 24); pen.globalAlpha = 1; }
}

// Draws the names of the arena's parts, the end of the program's region, and the budget.
function draw_regions(pen, place) {
  const plan = shown.plan, tall = (low, high) => place.y_of(Math.max(low, view.low)) - place.y_of(Math.min(high, view.high)) > 15;
  const parts = [["state", 0, plan.state_bytes], ["gradients", plan.state_bytes, plan.program_base]];
  for (const [name, low, high] of parts) {
    if (high > low && high > view.low && low < view.high && tall(low, high)) {
      draw_tag(pen, place.left + place.width - 6, Math.max(place.top + 8, place.y_of(high) + 9), name, inks.muted.text, "right");
    }
  }
  if (plan.program_base > 0) draw_level(pen, place, plan.program_base, shown.program.name, inks.muted.text, []);
  if (plan.budget) draw_level(pen, place, plan.budget.end, plan.budget.name + " " + bytes_words(plan.budget.bytes), inks.alarm.text, [7, 4]);
}

// Draws outlines of the selected and the hovered item, a line for the selected row, and marks at
// the highest rows.
function draw_choice(pen, place) {
  shown.program.peaks.forEach((peak, i) => {
    const x = place.x_of(peak.row + 0.5);
    pen.fillStyle = i === 0 ? inks.alarm.text : inks.muted.text;
    pen.beginPath(); pen.moveTo(x - 5, place.top); pen.lineTo(x + 5, place.top); pen.lineTo(x, place.top + 8); pen.fill();
  });
  if (shown.row !== null) {
    const left = place.x_of(shown.row), width = Math.max(1.5, place.x_of(shown.row + 1) - left);
    pen.globalAlpha = 0.3;
    pen.fillStyle = inks.accent.text;
    pen.fillRect(left, place.top, width, place.height);
    pen.globalAlpha = 1;
  }
  for (const again of (shown.selected && shown.selected.repeats) || []) {
    if (again !== shown.selected) outline(pen, place, again, inks.accent.text, 1.5, [3, 2]);
  }
  if (shown.hovered) outline(pen, place, shown.hovered, inks.ink.text, 1.5, []);
  for (const [ink, width] of shown.selected ? [[inks.card.text, 6], [inks.ink.text, 2.5]] : []) outline(pen, place, shown.selected, ink, width, []);
}

function outline(pen, place, item, ink, width, dashes) {
  pen.strokeStyle = ink;
  pen.lineWidth = width;
  pen.setLineDash(dashes);
  if (shown.mode === "stack" && item.region === "slot") outline_in_stack(pen, place, item);
  else {
    const x = place.x_of(item.first), y = place.y_of(item.address + item.bytes);
    pen.strokeRect(x, y, Math.max(1.5, place.x_of(item.end) - x), Math.max(1.5, place.y_of(item.address) - y));
  }
  pen.setLineDash([]);
}

function outline_in_stack(pen, place, item) {
  const first = Math.max(item.first, Math.floor(view.first)), end = Math.min(item.end, Math.ceil(view.end)),
        step = Math.max(1, Math.floor((end - first) / 400));
  const below = levels_of_item(shown.program, item);
  pen.beginPath();
  for (let row = first; row < end; row += step) {
    const low = below[row - item.first], x = place.x_of(row), y = place.y_of(low + item.bytes);
    pen.rect(x, y, Math.max(1, place.x_of(Math.min(end, row + step)) - x), Math.max(1, place.y_of(low) - y));
  }
  pen.stroke();
}

function draw_brush(pen, place) {
  if (!drawing.brush) return;
  const {x, y, width, height} = drawing.brush;
  pen.fillStyle = inks.accent.text;
  pen.globalAlpha = 0.18;
  pen.fillRect(x, y, width, height);
  pen.globalAlpha = 1;
  pen.strokeStyle = inks.accent.text;
  pen.lineWidth = 1;
  pen.strokeRect(x + 0.5, y + 0.5, width, height);
}

// Returns the item at a position of the plot, or null. If no box is there, the nearest one within
// three pixels counts, because boxes may be very thin.
function item_at(x, y) {
  const place = drawing.place, row = place.row_at(x), address = place.address_at(y);
  if (x < place.left || x >= place.left + place.width || y < place.top || y >= place.top + place.height) return null;
  const inside = (item) => item.first <= row && row < item.end && item.address <= address && address < item.address + aligned(item.bytes);
  if (shown.mode === "map" || address < shown.plan.program_base) return shown.program.items.find(inside) || nearest_item(place, x, y);
  const level = levels_of_row(shown.program, Math.floor(row)).find((each) => each.low <= address && address < each.high);
  return level ? level.item : null;
}

function nearest_item(place, x, y) {
  const reach = 3, first = place.row_at(x - reach), end = place.row_at(x + reach), low = place.address_at(y + reach),
        high = place.address_at(y - reach);
  const near = shown.program.slots.filter((item) => item.first < end && item.end > first && item.address < high && item.address + item.bytes > low);
  return near.length > 0 ? near.reduce((a, b) => (b.bytes * (b.end - b.first) > a.bytes * (a.end - a.first) ? b : a)) : null;
}
