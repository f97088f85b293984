// Shows the front: the cost of a step for each budget of the sweep. The slider and the points
// choose the plan of the map.
"use strict";

const kFront = {width: 340, height: 210, left: 52, right: 14, top: 12, bottom: 34};

// Returns a step's time for each plan, or its work in steps without recomputation if no profile was
// given.
function front_points() {
  const manifests = shown.data.plans, timed = manifests.every((m) => typeof m.predicted_seconds === "number");
  return {timed, points: manifests.map((m, index) => ({index, bytes: m.planned_bytes,
                                                       cost: timed ? m.predicted_seconds : 1 + m.extra_forward_cost}))};
}

function front_panel(panel) {
  const {timed, points} = front_points(), here = points[shown.plan_index];
  const cost = timed ? seconds_words(here.cost) : percent_words(here.cost) + " of a step without recomputation";
  const slider = make("input", {
    type: "range", id: "front-slider", min: 0, max: points.length - 1, step: 1, value: shown.plan_index, "data-slider": "front",
    "aria-label": "Plan by budget", "aria-valuetext": bytes_words(here.bytes) + ", " + cost,
    oninput: (event) => show({plan_index: Number(event.target.value)}),
  });
  fill(panel, make("p", {class: "front-now"}, make("b", {}, bytes_words(here.bytes)), " ", cost), slider,
       front_chart(points, timed), front_table(points, timed),
       make("button", {type: "button", class: "csv", onclick: () => save_csv("front", front_csv())}, "CSV"));
}

// Makes an SVG element. The page's empty <svg> provides the namespace, whose name would look like a
// network address.
function svg(tag, attributes, ...children) {
  const element = document.createElementNS(element_of("chart").namespaceURI, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value); else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

// Returns about four round numbers of a unit between `low` and `high`.
function round_ticks(low, high, unit) {
  const least = (high - low) / 4.5 / unit, power = 10 ** Math.floor(Math.log10(least)),
        step = [1, 2, 5, 10].find((base) => base * power >= least) * power * unit;
  const first = Math.ceil(low / step);
  return Array.from({length: Math.max(0, Math.floor(high / step) - first + 1)}, (_, i) => (first + i) * step);
}

// Returns a range slightly larger than that of the values.
function span_of(values) {
  const low = Math.min(...values), high = Math.max(...values), room = (high - low || high || 1) * 0.06;
  return [low - room, high + room];
}

function front_chart(points, timed) {
  const f = kFront, right_end = f.width - f.right, floor = f.height - f.bottom;
  const [left, right] = span_of(points.map((point) => point.bytes)), [low, high] = span_of(points.map((point) => point.cost));
  const x = (bytes) => f.left + ((bytes - left) / (right - left)) * (right_end - f.left), y = (cost) => floor - ((cost - low) / (high - low)) * (floor - f.top);
  const label = "Budget against " + (timed ? "step time" : "work");
  const chart = svg("svg", {viewBox: "0 0 " + f.width + " " + f.height, class: "front", role: "img", "aria-label": label});
  chart.append(svg("path", {class: "axis", d: "M" + f.left + " " + f.top + "V" + floor + "H" + right_end}));
  for (const cost of round_ticks(low, high, 1)) {
    const text = timed ? seconds_words(cost) : percent_words(cost, high - low < 0.05 ? 1 : 0);
    chart.append(svg("path", {class: "grid", d: "M" + f.left + " " + y(cost).toFixed(1) + "H" + right_end}));
    chart.append(svg("text", {x: f.left - 6, y: y(cost) + 4, "text-anchor": "end"}, text));
  }
  for (const bytes of round_ticks(left, right, 1024 ** Math.floor(Math.log(right) / Math.log(1024)))) {
    chart.append(svg("text", {x: x(bytes), y: floor + 16, "text-anchor": "middle"}, bytes_words(bytes).replace(".0 ", " ")));
  }
  chart.append(svg("path", {class: "curve", d: "M" + points.map((point) => x(point.bytes).toFixed(1) + " " + y(point.cost).toFixed(1)).join("L")}));
  for (const point of points) chart.append(front_point(point, x(point.bytes), y(point.cost)));
  chart.append(svg("text", {x: right_end, y: f.height - 4, "text-anchor": "end"}, "planned bytes"));
  return chart;
}

function front_point({index}, x, y) {
  const here = index === shown.plan_index;
  return svg("circle", {cx: x, cy: y, r: here ? 7 : 4.5, class: here ? "point here" : "point", "data-plan": index, onclick: () => show({plan_index: index})});
}

function front_table(points, timed) {
  const head = ["budget", "planned", timed ? "a step" : "work"].map((text) => make("th", {scope: "col"}, text));
  const line = ({index, bytes, cost}) => {
    const m = shown.data.plans[index];
    return make("tr", {"aria-current": index === shown.plan_index ? "true" : null},
      make("td", {}, bytes_or_none(m.budget_bytes || m.feature_map_budget_bytes)),
      make("td", {}, make("button", {type: "button", class: "jump", "data-plan": index, onclick: () => show({plan_index: index})}, bytes_words(bytes))),
      make("td", {}, timed ? seconds_words(cost) : percent_words(cost)));
  };
  return make("table", {class: "front-table"}, make("thead", {}, make("tr", {}, head)), make("tbody", {}, points.map(line)));
}
