// Keeps the page's address and the selection equal: #slot=micro_first:12, #slot=state:3,
// #row=micro_first:40.
"use strict";

let written_link = "";

// Returns the address of the latest selection, of a slot or of a row.
function link_of_choice() {
  if (shown.selected && (shown.row === null || shown.latest === "slot")) return "#slot=" + shown.selected.id;
  return shown.row === null ? "" : "#row=" + shown.program.name + ":" + shown.row;
}

function write_link() {
  const link = link_of_choice();
  if (link === written_link) return;
  written_link = link;
  history.replaceState(null, "", link || location.pathname + location.search);
}

// Selects what the address names; an unknown name changes nothing.
function follow_link() {
  const parts = location.hash.match(/^#(slot|row)=([a-z_:]+):(\d{1,9})$/);
  if (!parts) return;
  written_link = location.hash;
  const [, what, where, number] = parts, program = where.replace(/^(disk|host):/, "");
  if (program_names(shown.plan).includes(program)) show_program(program);
  if (what === "row") {
    if (shown.program.name === where && Number(number) < shown.program.rows.length) { show({selected: null}); select_row(Number(number)); }
    return;
  }
  const item = shown.program.by_id.get(where + ":" + number);
  if (item) { show({row: null}); select_item(item); }
}
