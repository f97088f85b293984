// Reads the data in the page: base64 of a deflated JSON text, whose lists of objects are stored by
// columns.
"use strict";

async function read_data() {
  const packed = atob(element_of("data").textContent.trim());
  const bytes = new Uint8Array(packed.length);
  for (let i = 0; i < packed.length; ++i) bytes[i] = packed.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

// Converts {"length": n, "columns": {"name": [n values] or {"values": [...], "index": [n]}}} to n
// objects. A list is returned unchanged.
function unpack(table) {
  if (!table) return [];
  if (Array.isArray(table)) return table;
  const objects = Array.from({length: table.length}, () => ({}));
  for (const [name, column] of Object.entries(table.columns)) {
    if (Array.isArray(column)) objects.forEach((object, i) => { object[name] = column[i]; });
    else objects.forEach((object, i) => { object[name] = column.values[column.index[i]]; });
  }
  return objects;
}
