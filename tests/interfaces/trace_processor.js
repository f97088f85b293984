// Queries Perfetto's own trace processor with SQL: node trace_processor.js FOLDER TRACE SQL...
// FOLDER contains its WebAssembly and its worker, as in the page ui.perfetto.dev (the Makefile
// fetches them). Prints one line for each query: a JSON list of rows, each an object by column.
// Reason: the program that reads a trace judges it best. The messages are those of Perfetto's
// protos/perfetto/trace_processor/trace_processor.proto.
"use strict";
const fs = require("fs");
const path = require("path");

const kAppendTrace = 1, kFinalizeTrace = 2, kQuery = 3;  // enum TraceProcessorMethod
const kNull = 1, kInteger = 2, kFloat = 3, kString = 4;  // enum CellType

function varint(value) {
  const bytes = [];
  for (; value > 127; value = Math.floor(value / 128)) bytes.push(value % 128 | 128);
  return Buffer.from([...bytes, value]);
}

const numberField = (field, value) => Buffer.concat([varint(field * 8), varint(value)]);
const bytesField = (field, bytes) => Buffer.concat([varint(field * 8 + 2), varint(bytes.length), bytes]);

function readVarint(bytes, at) {
  let value = 0n, shift = 0n, byte;
  do {
    byte = bytes[at++];
    value |= BigInt(byte & 127) << shift;
    shift += 7n;
  } while (byte > 127);
  return [Number(BigInt.asIntN(64, value)), at];
}

// Calls visit(field, value) for each field of a message; the value is a number or bytes.
function readMessage(bytes, visit) {
  for (let at = 0; at < bytes.length;) {
    let tag, value;
    [tag, at] = readVarint(bytes, at);
    const wire = tag & 7;
    if (wire === 0) {
      [value, at] = readVarint(bytes, at);
    } else {
      let length = wire === 1 ? 8 : 4;
      if (wire === 2) [length, at] = readVarint(bytes, at);
      value = bytes.subarray(at, at += length);
    }
    visit(tag >> 3, value);
  }
}

function readVarints(bytes) {
  const values = [];
  for (let at = 0, value; at < bytes.length; values.push(value)) [value, at] = readVarint(bytes, at);
  return values;
}

// Returns the cells of a batch in their order, of all kinds.
function readBatch(batch) {
  const values = {};
  let kinds = [];
  readMessage(batch, (field, value) => {
    if (field === 1) kinds = readVarints(value);
    if (field === 2) values[kInteger] = readVarints(value);
    if (field === 3) values[kFloat] = Array.from({length: value.length / 8}, (_, i) => value.readDoubleLE(8 * i));
    if (field === 5) values[kString] = value.toString("utf8").split("\0");
  });
  return kinds.map((kind) => (kind === kNull ? null : values[kind].shift()));
}

// The answer to one query, which arrives in several messages.
class Answer {
  constructor() {
    this.columns = [];
    this.cells = [];
    this.error = "";
  }
  add(result) {
    readMessage(result, (field, value) => {
      if (field === 1) this.columns.push(value.toString("utf8"));
      if (field === 2) this.error = value.toString("utf8");
      if (field === 3) this.cells.push(...readBatch(value));
    });
  }
  rows() {
    if (this.error !== "") throw new Error(this.error);
    const rows = [];
    for (let at = 0; at < this.cells.length; at += this.columns.length) {
      rows.push(Object.fromEntries(this.columns.map((name, c) => [name, this.cells[at + c]])));
    }
    return rows;
  }
}

class TraceProcessor {
  constructor(port, answers) {
    this.port = port;
    this.answers = answers;
    this.sequence = 0;
  }
  // Returns the messages that arrive while a request is handled.
  request(method, argument) {
    const call = Buffer.concat([numberField(1, ++this.sequence), numberField(2, method), argument]);
    this.answers.length = 0;
    this.port.onmessage({data: new Uint8Array(bytesField(1, call))});
    return this.answers.map((bytes) => Buffer.from(bytes));
  }
  open(trace) {
    for (let at = 0; at < trace.length; at += 1 << 20) this.append(trace.subarray(at, at + (1 << 20)));
    this.request(kFinalizeTrace, Buffer.alloc(0));
  }
  append(bytes) {
    this.visitResults(this.request(kAppendTrace, bytesField(101, bytes)), 201, (result) => readMessage(result, (field, value) => {
      if (field === 2) throw new Error(value.toString("utf8"));
    }));
  }
  query(sql) {
    const answer = new Answer();
    this.visitResults(this.request(kQuery, bytesField(103, bytesField(1, Buffer.from(sql)))), 203, (result) => answer.add(result));
    return answer.rows();
  }
  visitResults(messages, wanted, visit) {
    for (const message of messages) {
      readMessage(message, (_, call) => readMessage(call, (field, value) => {
        if (field === wanted) visit(value);
        if (field === 5) throw new Error(value.toString("utf8"));  // fatal_error
      }));
    }
  }
}

// Replaces a page's request for a file in its folder.
function requestsFrom(folder) {
  return class {
    open(_, name) {
      this.name = path.join(folder, path.basename(name));
    }
    send() {
      this.response = new Uint8Array(fs.readFileSync(this.name)).buffer;
    }
  };
}

// Starts the worker with what a page gives it: a location, a way to read files there, and a port.
// The worker was built for pages and refuses Node.
async function start(folder) {
  const answers = [];
  const port = {postMessage: (bytes) => answers.push(bytes), onmessage: null};
  Object.assign(globalThis, {self: globalThis, WorkerGlobalScope: class {}, location: {href: "file:///"}, XMLHttpRequest: requestsFrom(folder)});
  Object.defineProperty(process, "versions", {value: {}});
  console.warn = () => {};
  (0, eval)(fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8"));
  globalThis.onmessage({data: port});
  await new Promise((ready) => setTimeout(ready, 0));  // lets tasks run that wait for the WebAssembly
  return new TraceProcessor(port, answers);
}

async function main([folder, trace, ...queries]) {
  const processor = await start(folder);
  processor.open(fs.readFileSync(trace));
  for (const sql of queries) console.log(JSON.stringify(processor.query(sql)));
  process.exit(0);
}

main(process.argv.slice(2)).catch((error) => {
  console.error(`trace_processor.js: ${error.message}`);
  process.exit(1);
});
