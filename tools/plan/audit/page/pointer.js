// Handles the pointer on the map: hovering shows an item, a click selects it, a drag zooms into its
// rectangle, the wheel zooms.
"use strict";

const kLeastDrag = 6;  // pixels; less is a click

function follow_pointer(canvas) {
  let start = null;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    start = place_of_pointer(canvas, event);
    start.panning = event.shiftKey;
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const here = place_of_pointer(canvas, event);
    if (start && start.panning) { drag_view(start, here); start = {...here, panning: true, moved: true}; return; }
    if (start) { drawing.brush = brush_of(start, here); request_drawing(); return; }
    point_at(here, event);
  });
  canvas.addEventListener("pointerup", (event) => {
    if (!start) return;
    const here = place_of_pointer(canvas, event), brush = brush_of(start, here), moved = start.moved;
    start = null;
    drawing.brush = null;
    if (brush) zoom_to_brush(brush); else if (!moved) choose_at(here);
    request_drawing();
  });
  canvas.addEventListener("pointercancel", () => { start = null; drawing.brush = null; request_drawing(); });
  canvas.addEventListener("pointerleave", () => { if (!start) { show({hovered: null}); element_of("tip").hidden = true; } });
  canvas.addEventListener("wheel", (event) => { event.preventDefault(); turn_wheel(event, place_of_pointer(canvas, event)); }, {passive: false});
  canvas.addEventListener("dblclick", (event) => {
    event.preventDefault();
    zoom_view(0.5, {row: drawing.place.row_at(place_of_pointer(canvas, event).x)});
  });
}

function place_of_pointer(canvas, event) {
  const box = canvas.getBoundingClientRect();
  return {x: event.clientX - box.left, y: event.clientY - box.top};
}

// Returns the rectangle of a drag: only rows if it is flat, only addresses if it is narrow, else
// both; null for a click.
function brush_of(from, to) {
  const place = drawing.place, across = Math.abs(to.x - from.x), down = Math.abs(to.y - from.y);
  if (across < kLeastDrag && down < kLeastDrag) return null;
  const right = place.left + place.width, bottom = place.top + place.height, within = (value, low, high) => Math.min(high, Math.max(low, value));
  const rows_alone = down < 14 || from.y < place.top, addresses_alone = across < 14 || from.x < place.left;
  const x0 = addresses_alone ? place.left : within(Math.min(from.x, to.x), place.left, right),
        x1 = addresses_alone ? right : within(Math.max(from.x, to.x), place.left, right);
  const y0 = rows_alone ? place.top : within(Math.min(from.y, to.y), place.top, bottom),
        y1 = rows_alone ? bottom : within(Math.max(from.y, to.y), place.top, bottom);
  return {x: x0, y: y0, width: x1 - x0, height: y1 - y0};
}

function zoom_to_brush(brush) {
  const place = drawing.place;
  move_view({first: place.row_at(brush.x), end: place.row_at(brush.x + brush.width), low: place.address_at(brush.y + brush.height),
             high: place.address_at(brush.y)});
}

function drag_view(from, to) {
  const place = drawing.place;
  pan_view((from.x - to.x) / place.width, (to.y - from.y) / place.height, false);
}

function turn_wheel(event, here) {
  const place = drawing.place, factor = Math.exp(Math.max(-1, Math.min(1, event.deltaY / 240)));
  if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan_view(event.deltaX / place.width, 0, false);
  else if (event.shiftKey) pan_view(event.deltaY / place.width, 0, false);
  else zoom_view(factor, {row: place.row_at(here.x), address: place.address_at(here.y), rows: !event.altKey,
                          addresses: event.altKey || event.ctrlKey, gliding: false});
}

function point_at(here, event) {
  const item = drawing.place ? item_at(here.x, here.y) : null;
  if (item !== shown.hovered) show({hovered: item});
  place_tip(event.clientX, event.clientY);
}

// Selects a row by a click on the bands or the axis, a slot by a click on the plot; a click on
// nothing clears the selection.
function choose_at(here) {
  const place = drawing.place, row = Math.floor(place.row_at(here.x)), beside = here.y < place.top || here.y > place.top + place.height;
  if (here.x >= place.left && beside && row >= 0 && row < shown.program.rows.length) { select_row(row); return; }
  const item = item_at(here.x, here.y);
  if (item) select_item(item); else show({selected: null, row: null});
}

// Shows the tip at the pointer, with the minimum that distinguishes slots; the panel has the rest.
function refresh_tip() {
  const item = shown.hovered, tip = element_of("tip");
  tip.hidden = !item;
  if (!item) return;
  fill(tip, make("strong", {}, short_name(item.name, 60)),
       make("span", {}, [kind_words(item.kind), shape_words(item), bytes_words(item.bytes),
                         item.region === "slot" ? rows_words(item.first, item.end - 1) : "all rows"].join("  \u00b7  ")));
}

function place_tip(x, y) {
  const tip = element_of("tip");
  if (tip.hidden) return;
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(4, Math.min(innerWidth - box.width - 8, x + 14)) + "px";
  tip.style.top = (y + 18 + box.height > innerHeight ? y - box.height - 12 : y + 18) + "px";
}
