'use strict';

// What pages around graphs have in common.

const $ = id => document.getElementById(id);
const number = n => n.toLocaleString('en-US');
const share = (n, of) => {
  const percent = of ? 100 * n / of : 0;
  return (percent === 0 || percent === 100 ? percent : percent.toFixed(percent < 9.95 ? 2 : 1)) + ' %';
};

function element(tag, className, text) {
  const e = document.createElement(tag);
  if (className) e.className = className;
  if (text !== undefined) e.textContent = text;
  return e;
}

// matcher makes a test of names from what is searched for: null for nothing. Capital letters count if there are any. It throws where a regular
// expression is none.
function matcher(text, regular) {
  if (!text) return null;
  if (regular) {
    const re = new RegExp(text, /\p{Lu}/u.test(text.replace(/\\./g, '')) ? 'u' : 'iu');
    return name => re.test(name);
  }
  return /\p{Lu}/u.test(text) ? name => name.includes(text) : name => name.toLowerCase().includes(text);
}

// showTip shows elements beside a point of the window.
function showTip(x, y, ...content) {
  const tip = $('tip');
  tip.hidden = false;
  tip.replaceChildren(...content);
  const w = tip.offsetWidth, h = tip.offsetHeight;
  tip.style.left = Math.max(8, Math.min(x + 14, innerWidth - w - 8)) + 'px';
  tip.style.top = (y + 20 + h > innerHeight - 40 ? Math.max(8, y - h - 12) : y + 20) + 'px';
}

// showCrumbs shows the way to the frame that a graph is zoomed to, whose frames zoom to themselves.
function showCrumbs(crumbs, graph, name, ends = 3) {
  const path = graph.path(graph.root);
  crumbs.replaceChildren();
  const add = node => {
    const b = element('button', '', name(node));
    b.title = name(node);
    if (node === graph.root) b.setAttribute('aria-current', 'true');
    b.addEventListener('click', () => graph.zoom(node));
    crumbs.append(b);
  };
  add(0);
  path.forEach((node, i) => {
    if (path.length > 2 * ends && i >= ends && i < path.length - ends) {
      if (i === ends) crumbs.append(element('span', '', `… ${path.length - 2 * ends} …`));
      return;
    }
    add(node);
  });
}

const STEPS = [0.001, 0.01, 0.03, 0.1, 0.3]; // of a difference of shares, each with a colour of its own to either side

// step is the colour of a difference, from -5 to 5.
function step(difference) {
  let n = 0;
  while (n < STEPS.length && Math.abs(difference) >= STEPS[n]) n++;
  return difference < 0 ? -n : n;
}
