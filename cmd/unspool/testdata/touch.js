// touch.js TIMES [FUNCTIONS]: optimized code under libuv that touches TIMES fresh pages each time that a line
// comes. It compiles FUNCTIONS others first, so that V8 writes out what its jitdump has in a buffer of 2 MiB.
// Memory of WebAssembly is always fresh. What malloc has for an array may have been in use before.
'use strict';
const fs = require('fs');
const times = Number(process.argv[2]);
function hotLeaf(a, n) { let s = 0; for (let i = 1; i <= n; i++) { a[i * 4096] = i; s += a[i * 4096 - 1]; } return s; }
function hotMiddle(a, n, deep) { return deep ? hotMiddle(a, n, deep - 1) + 1 : hotLeaf(a, n); }
let total = 0;
const small = new Uint8Array(4096 * 4);
for (let i = 0; i < 30000; i++) total += hotMiddle(small, 3, 8);
for (let i = 0; i < Number(process.argv[3] || 0); i++) total += new Function('return ' + i)();
const line = Buffer.alloc(1);
function again() {
  if (fs.readSync(0, line, 0, 1) !== 1) return;
  const fresh = new Uint8Array(new WebAssembly.Memory({initial: Math.ceil((times + 2) / 16)}).buffer);
  total += hotMiddle(fresh, times, 8);
  fs.writeSync(1, 'done\n');
  setImmediate(again);
}
setImmediate(again);
fs.writeSync(1, 'ready\n');
