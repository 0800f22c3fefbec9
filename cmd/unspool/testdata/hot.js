// hot.js [FUNCTIONS]: runs optimized code under libuv. It compiles FUNCTIONS
// others first, so that V8 writes out what its jitdump has in a buffer of 2 MiB.
'use strict';
function leaf(a, b) { let s = 0; for (let i = 0; i < a.length; i++) s = (s * 31 + a[i] * b) | 0; return s; }
function middle(a, n) { return n ? middle(a, n - 1) + leaf(a, n) : leaf(a, 7); }
const data = Array.from({ length: 500 }, (_, i) => i);
let total = 0;
function turn() {
  for (let i = 0; i < 100; i++) total = (total + middle(data, 8)) | 0;
  data.sort((x, y) => y - x);
  total += JSON.stringify(data).length + /(\d+)-(\d*)/.exec('x'.repeat(200) + '12-3').length;
}
for (let i = 0; i < 20; i++) turn();
for (let i = 0; i < Number(process.argv[2] || 0); i++) total += new Function('return ' + i)();
console.log('ready');
const end = Date.now() + 120000;
(function again() { turn(); if (Date.now() < end) setImmediate(again); })();
