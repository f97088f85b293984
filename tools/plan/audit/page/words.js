// Formats numbers and names for users.
"use strict";

const kLongestName = 96;

// Returns a text such as "15.3 MiB", in the command line's form.
function bytes_words(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0, value = Math.abs(bytes);
  while (value >= 1024 && unit + 1 < units.length) { value /= 1024; ++unit; }
  return (bytes < 0 ? "\u2212" : "") + (unit === 0 ? String(value) : value.toFixed(1)) + " " + units[unit];
}

const kCounts = new Intl.NumberFormat("en-US"),
      kFixed = [0, 1, 2, 3].map((digits) => new Intl.NumberFormat("en-US", {minimumFractionDigits: digits, maximumFractionDigits: digits}));
function count_words(number) { return kCounts.format(number); }

// Returns both forms: the rounded one to read and the exact one to compare.
function exact_bytes(bytes) {
  return bytes < 1024 ? count_words(bytes) + " B" : [bytes_words(bytes) + " ", make("small", {class: "exact"}, count_words(bytes) + " B")];
}

function change_words(bytes) { return (bytes > 0 ? "+" : "") + bytes_words(bytes); }

function percent_words(share, digits = 1) { return (100 * share).toFixed(digits) + "%"; }

function seconds_words(seconds) {
  const size = Math.abs(seconds);
  if (size === 0) return "0 s";
  if (size < 1e-3) return (seconds * 1e6).toPrecision(3) + " \u00b5s";
  return size < 1 ? (seconds * 1e3).toPrecision(3) + " ms" : seconds.toPrecision(4) + " s";
}

function share_words(share) { return share === 0 ? "0%" : Number((100 * share).toPrecision(3)) + "%"; }

// Formats a cost in "seconds", or of "work", as a share of a step's forward and backward.
function cost_words(cost, unit) { return unit === "seconds" ? seconds_words(cost) : share_words(cost) + " of a step"; }

// Returns a name with its invisible characters replaced: control characters, and those that change
// the direction of text.
function visible_name(name) {
  return name.replace(/[\u0000-\u001f]/g, (c) => String.fromCharCode(0x2400 + c.charCodeAt(0)))
    .replace(/[\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g, "\ufffd");
}

// Returns a long name without its middle: the end shows which weight it is.
function short_name(name, longest = kLongestName) {
  const text = String(name);
  if (text.length <= longest) return visible_name(text);
  const head = Math.ceil((longest - 1) / 2);
  return visible_name(text.slice(0, head)) + "\u2026" + visible_name(text.slice(text.length - (longest - 1 - head)));
}

function shape_words(item) { return "[" + (item.shape || []).join(", ") + "] " + item.dtype; }

function rows_words(first, last) { return first === last ? "row " + count_words(first) : "rows " + count_words(first) + " to " + count_words(last); }

function kind_words(kind) { return String(kind).replaceAll("_", " "); }

// Returns an action of the schedule in words; {"action": "record", "link": 2, "tape": 0} is one.
function action_words(action, links) {
  const link = (index) => "link " + index + (links[index] === undefined ? "" : " (" + short_name(links[index], 40) + ")");
  switch (action.action) {
    case "advance": {
      const range = action.first === action.last ? link(action.first) : "links " + action.first + " to " + action.last;
      return "advance " + range + (action.residue_mode >= 0 ? ", keeping residue " + action.residue_mode : "");
    }
    case "record": return "record " + link(action.link) + ", tape " + action.tape;
    case "backward": return "backward " + link(action.link);
    default: return action.action + " boundary " + action.boundary;
  }
}

function plural(number, noun) { return count_words(number) + " " + noun + (number === 1 ? "" : "s"); }
