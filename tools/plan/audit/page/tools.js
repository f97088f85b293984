// Draws the tools above the map: picture, colours, zoom, and the legend.
"use strict";

function refresh_tools() { keeping_focus(fill_tools); }

function fill_tools() {
  fill(element_of("tools"),
       choice("Picture", "mode", [["map", "Addresses"], ["stack", "Live bytes"]]),
       choice("Colour by", "colour", [["kind", "kind"], ["link", "link"], ["dtype", "type"]]),
       toggle("patterns", "Patterns", "Tell kinds apart by patterns too"),
       shown.data.diff && toggle("ghosts", "Ghosts", "Where the other plan had what has changed"),
       make("span", {class: "group"},
            tool("\u2212", "Zoom out", () => zoom_view(1 / 0.6)), tool("+", "Zoom in", () => zoom_view(0.6)),
            tool("Program", "The whole program (0)", () => move_view(home_view(shown.program))),
            tool("Arena", "The whole arena, with State and gradients (a)", () => move_view(arena_view(shown.program)))),
       tool("CSV", "The slots in sight, as a table", () => save_csv("slots", slots_csv())));
  refresh_legend();
}

function tool(text, title, onclick) { return make("button", {type: "button", title, "aria-label": title, onclick}, text); }

function choice(label, name, options) {
  return make("span", {class: "group", role: "group", "aria-label": label}, make("span", {class: "label"}, label), options.map(([value, text]) =>
    make("button", {type: "button", "aria-pressed": String(shown[name] === value), "data-choice": name + ":" + value,
                    onclick: () => show({[name]: value})}, text)));
}

function toggle(name, text, title) {
  return make("button", {type: "button", title, "aria-pressed": String(shown[name]), "data-choice": name,
                         onclick: () => show({[name]: !shown[name]})}, text);
}

// Draws the legend. For links it has the first, the last and some between: colours follow their
// order.
function refresh_legend() {
  const used = new Set(shown.program.items.map((item) => item.group)), groups = shown.program.groups.filter((_, i) => used.has(i));
  const step = shown.colour === "link" ? Math.ceil(groups.length / 10) : 1, listed = groups.filter((_, i) => i % step === 0 || i === groups.length - 1);
  fill(element_of("legend"), listed.map((group) => make("li", {}, swatch(group), group.label)), marks_of_slots(), marks_of_rows());
}

function marks_of_slots() {
  const items = shown.program.items, grey = (texture) => swatch({colour: colour("#999999"), texture}, true);
  return [items.some((item) => aligned(item.bytes) > item.bytes) && make("li", {}, grey("hatch"), "padding"),
          items.some((item) => item.flights) && make("li", {}, grey("stripes"), "in flight"),
          shown.data.diff && shown.ghosts && make("li", {}, make("i", {class: "ghost"}), "the other plan")];
}

function marks_of_rows() {
  const stages = kStages.filter((stage) => bands_of(shown.program).stages.some((run) => run.value === stage));
  const mark = (stage) => swatch({colour: stage_paint(stage), texture: stage === "recomputed" ? "stripes" : "none"}, true);
  return [stages.length > 0 && make("li", {class: "stages"}, "rows:"), ...stages.map((stage) => make("li", {}, mark(stage), stage)),
          shown.program.peaks.length > 0 && make("li", {}, make("i", {class: "peak-mark"}), "highest row")];
}

function swatch(group, always = false) {
  const canvas = make("canvas", {class: "swatch", width: 14, height: 14, "aria-hidden": "true"}), painter = new Painter(14, 14);
  painter.clear(new Uint32Array(14).fill(group.colour.word));
  painter.fill(0, 0, 14, 14, group.colour, shown.patterns || always ? group.texture : "none");
  canvas.getContext("2d").putImageData(painter.image, 0, 0);
  return canvas;
}
