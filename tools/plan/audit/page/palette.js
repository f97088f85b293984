// Defines colours, those of Okabe and Ito for kinds that everybody must be able to distinguish, and
// patterns for users who see no colours.
"use strict";

const kKindColours = {
  boundary: "#0072b2", tape: "#009e73", transient: "#8ecdf2", gradient: "#d55e00", weight_gradient: "#e69f00", scratch: "#b4b4ae",
  small: "#cc79a7", input: "#f0e442", label: "#c7b42c", cache: "#7b61c4", weight: "#a3623a",
  parameter: "#5f7183", optimizer: "#46535f", buffer: "#8798a8", scalars: "#a7b3bd", norms: "#a7b3bd", table: "#a7b3bd", streamed: "#a3623a", offloaded: "#7a4d63",
};
const kKindTextures = {boundary: "none", tape: "lines", transient: "dots", gradient: "bars", weight_gradient: "grid", scratch: "crosses",
                       small: "none", input: "dots", label: "lines", cache: "grid", weight: "lines", parameter: "none", optimizer: "lines", buffer: "dots"};
const kTypeColours = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#8ecdf2", "#d55e00", "#f0e442", "#5f7183"];
const kStages = ["forward", "recomputed", "backward", "update", "move", "transfer"];
const kStageColours = {forward: "#9ec9e6", recomputed: "#f0b25a", backward: "#33658a", update: "#56a36c", move: "#b9a3d3", transfer: "#8f6fc0"};
const kShortStages = {forward: "forw.", backward: "backw.", update: "upd.", transfer: "trans."};
// Viridis: links in forward order, from the first to the last.
const kLinkColours = ["#440154", "#482878", "#3e4a89", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6dcd59", "#b4de2c", "#fde725"];

const inks = {};  // colours of the style sheet for the canvas, by name

function colour(text) {
  const value = parseInt(text.slice(1), 16), r = value >> 16, g = (value >> 8) & 255, b = value & 255;
  return {text, r, g, b, word: ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0, light: 0.299 * r + 0.587 * g + 0.114 * b > 140};
}

function mixed(a, b, share) {
  const part = (x, y) => Math.round(x + (y - x) * share).toString(16).padStart(2, "0");
  return colour("#" + part(a.r, b.r) + part(a.g, b.g) + part(a.b, b.b));
}

function read_inks() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["ink", "muted", "line", "plot", "card", "accent", "alarm", "odd", "even"]) {
    inks[name] = colour(style.getPropertyValue("--" + name).trim());
  }
}

function link_colour(index, count) {
  const place = count > 1 ? (index / (count - 1)) * (kLinkColours.length - 1) : 0, low = Math.min(kLinkColours.length - 2, Math.floor(place));
  const here = mixed(colour(kLinkColours[low]), colour(kLinkColours[low + 1]), place - low);
  return index % 2 ? mixed(here, colour("#ffffff"), 0.22) : here;  // neighbours differ
}

// Returns the groups by which items are coloured: [{value, label, colour, texture}], in the order
// of the legend and of the stack.
function colour_groups(program, by) {
  const values = (key) => [...new Set(program.items.map((item) => item[key]))];
  if (by === "kind") {
    const known = Object.keys(kKindColours), kinds = values("kind");
    return [...known.filter((kind) => kinds.includes(kind)), ...kinds.filter((kind) => !known.includes(kind))].map((kind) =>
      ({value: kind, label: kind_words(kind), colour: colour(kKindColours[kind] || "#888888"), texture: kKindTextures[kind] || "none"}));
  }
  if (by === "dtype") {
    const textures = ["none", "lines", "dots", "bars", "grid", "crosses"];
    return values("dtype").sort().map((type, i) =>
      ({value: type, label: String(type), colour: colour(kTypeColours[i % kTypeColours.length]), texture: textures[i % textures.length]}));
  }
  const links = program.plan.links;
  const group = (link, i) => ({value: link, label: short_name(link, 32), colour: link_colour(i, links.length), texture: i % 2 ? "lines" : "none"});
  return [...links.map(group),
          {value: undefined, label: "state and gradients", colour: colour("#77828c"), texture: "none"}];
}

// Gives every item of the program its colour and its position in the stack.
function recolour() {
  read_inks();
  const program = shown.program, key = {kind: "kind", dtype: "dtype", link: "layer"}[shown.colour];
  const groups = colour_groups(program, shown.colour), places = new Map(groups.map((group, i) => [group.value, i]));
  program.groups = groups;
  for (const item of program.items) {
    item.group = places.has(item[key]) ? places.get(item[key]) : groups.length - 1;
    item.paint = groups[item.group].colour;
    item.texture = shown.patterns ? groups[item.group].texture : "none";
  }
  program.stacking = null;
  repaint();
}
