const words = Array.from({ length: 2000 }, (_, i) => `word${(i * 7919) % 1000}`);
const data = { words, numbers: words.map((_, i) => i / 3) };
const fib = (n) => (n < 2 ? n : fib(n - 1) + fib(n - 2));

const end = Date.now() + 3000;
while (Date.now() < end) {
  const text = JSON.stringify(data);
  const copy = JSON.parse(text);
  text.replace(/(w[a-z]+)(\d+)/g, (_, w, d) => w + Number(d).toString(16));
  copy.words.sort((a, b) => a.length - b.length || a.localeCompare(b));
  fib(18);
  new Map(copy.words.map((w) => [w, Buffer.from(w).toString('base64')]));
}
