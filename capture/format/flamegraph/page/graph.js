'use strict';

const ROW = 19; // height of a row in CSS pixels, with the gap below it
const LEAST = 0.5; // CSS pixels that a frame must be wide to be drawn

// FlameGraph draws a tree (Callees or Callers) on a canvas inside of host, and zooms. It tells what happens by events of host:
// 'point' and 'select' with {node, x, y} (node -1 for none), and 'zoom'. What it draws follows from tree, hits (a function of a node's
// function, or null) and the colours of the page's style.
class FlameGraph {
  constructor(host, functions) {
    this.host = host;
    this.functions = functions;
    this.canvas = host.appendChild(document.createElement('canvas'));
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute('role', 'application');
    this.canvas.setAttribute('aria-label', 'Flame graph: arrow keys move between frames, Enter zooms');
    this.context = this.canvas.getContext('2d');
    this.tree = null;
    this.hits = null;
    this.rows = []; // boxes by depth, from left to right
    this.root = 0; // the frame zoomed to
    this.selected = this.pointed = -1;
    this.letters = new Map(); // their widths
    this.frame = 0;

    const stale = () => this.schedule();
    addEventListener('scroll', stale, {passive: true});
    new ResizeObserver(() => { // of the width: the height is the layout's own
      if (host.clientWidth !== this.width) this.layout();
      this.schedule();
    }).observe(host);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { this.style = null; stale(); });
    this.canvas.addEventListener('focus', stale);
    this.canvas.addEventListener('blur', stale);
    this.canvas.addEventListener('mousemove', e => this.point(this.at(e), e));
    this.canvas.addEventListener('mouseleave', e => this.point(-1, e));
    this.canvas.addEventListener('click', e => {
      const node = this.at(e);
      if (node < 0) return;
      this.select(node);
      this.zoom(node);
    });
    this.canvas.addEventListener('keydown', e => this.key(e));
  }

  // show draws another tree, all of it; or the same one with new weights, where it was zoomed to if that has any.
  show(tree) {
    if (tree !== this.tree || !(tree.total[this.root] > 0)) this.root = 0;
    this.tree = tree;
    this.selected = this.pointed = -1;
    this.range = [tree.start[this.root], tree.start[this.root] + tree.total[this.root]];
    this.target = null; // of the range, while it moves
    this.layout();
    this.schedule();
    this.tell('zoom');
  }

  mark(hits) {
    this.hits = hits;
    this.schedule();
  }

  tell(what, detail) { this.host.dispatchEvent(new CustomEvent(what, {detail})); }

  point(node, e) {
    if (node !== this.pointed) {
      this.pointed = node;
      this.schedule();
    }
    this.canvas.style.cursor = node < 0 ? '' : 'pointer';
    this.tell('point', {node, x: e.clientX, y: e.clientY});
  }

  select(node) {
    this.selected = node;
    this.schedule();
    this.tell('select', {node});
  }

  // zoom makes a frame as wide as the graph; its callers stay above it.
  zoom(node) {
    this.root = node;
    const {start, total} = this.tree;
    const from = this.range, to = this.target = [start[node], start[node] + total[node]];
    this.tell('zoom');
    if (matchMedia('(prefers-reduced-motion: reduce)').matches) {
      this.settle();
      return;
    }
    const began = performance.now(), lasts = 160;
    const step = now => {
      if (this.target !== to) return;
      const t = Math.max(0, now - began) / lasts, eased = 1 - (1 - t) ** 3;
      if (t >= 1) {
        this.settle();
        return;
      }
      this.range = [from[0] + (to[0] - from[0]) * eased, from[1] + (to[1] - from[1]) * eased];
      this.layout();
      this.paint();
      requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  }

  // settle ends a zoom that is on its way.
  settle() {
    if (!this.target) return;
    this.range = this.target;
    this.target = null;
    this.layout();
    this.schedule();
  }

  // path is the frames from the outermost one to node.
  path(node) {
    const path = [];
    for (; node > 0; node = this.tree.parent[node]) path.push(node);
    return path.reverse();
  }

  // layout finds the boxes that are wide enough, whatever is scrolled into view.
  layout() {
    const {tree, host} = this;
    if (!tree) return;
    const width = this.width = host.clientWidth, [from, to] = this.range;
    const scale = to > from ? width / (to - from) : 0;
    const rows = this.rows = [];
    const open = [0];
    while (open.length) {
      const node = open.pop(), depth = tree.depth[node];
      const left = Math.max(0, (tree.start[node] - from) * scale);
      const right = scale ? Math.min(width, (tree.start[node] + tree.total[node] - from) * scale) : width;
      (rows[depth] ||= []).push({node, x: left, w: right - left});
      const inside = open.length;
      let rest = null; // neighbours that are too narrow, as one box
      tree.children(node, child => {
        const x = Math.max(0, (tree.start[child] - from) * scale), end = Math.min(width, (tree.start[child] + tree.total[child] - from) * scale);
        if (end <= x) return;
        if (end - x >= LEAST) {
          open.push(child);
          rest = null;
        } else if (rest) {
          rest.w = end - rest.x;
        } else {
          rest = {node: -1, x, w: end - x};
          (rows[depth + 1] ||= []).push(rest);
        }
      });
      for (let a = inside, b = open.length - 1; a < b; a++, b--) [open[a], open[b]] = [open[b], open[a]];
    }
    for (const row of rows) row.sort((a, b) => a.x - b.x);
    host.style.height = rows.length * ROW + 'px';
  }

  schedule() {
    this.frame ||= requestAnimationFrame(() => { this.frame = 0; this.paint(); });
  }

  colours() {
    const css = getComputedStyle(document.documentElement), value = name => css.getPropertyValue(name).trim();
    const fills = [];
    for (let c = 0; value(`--fill${c}-0`); c++) fills.push([0, 1, 2, 3].map(s => value(`--fill${c}-${s}`)));
    this.style = {fills, font: value('--frame-font')};
    for (const name of ['ink', 'ground', 'root', 'rest', 'match', 'match-ink', 'accent', 'outline']) this.style[name] = value('--' + name);
    this.letters.clear();
  }

  paint() {
    const {canvas, context: c, host, tree} = this;
    if (!tree) return;
    if (!this.style) this.colours();
    const style = this.style, ratio = devicePixelRatio || 1;
    const top = parseFloat(getComputedStyle(canvas).top) || 0; // where the canvas sticks
    const height = Math.min(innerHeight - top, host.clientHeight), width = this.width;
    const offset = Math.min(Math.max(0, top - host.getBoundingClientRect().top), host.clientHeight - height);
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.width = width + 'px';
      canvas.style.height = height + 'px';
    }
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, width, height);
    c.translate(0, -offset);
    c.font = style.font;
    c.textBaseline = 'middle';
    const zoomed = tree.depth[this.root];
    const last = Math.min(this.rows.length, Math.ceil((offset + height) / ROW));
    for (let depth = Math.floor(offset / ROW); depth < last; depth++) {
      for (const box of this.rows[depth] || []) this.box(box, depth, depth < zoomed);
    }
    if (this.pointed >= 0) this.outline(this.pointed, style.outline, 1);
    if (this.selected >= 0) this.outline(this.selected, style.accent, 2);
    else if (canvas.matches(':focus-visible')) this.outline(this.root, style.accent, 2);
  }

  box(box, depth, above) {
    const {context: c, style} = this, y = depth * ROW;
    const gap = box.w > 3 ? 1 : 0;
    if (box.node < 0) {
      c.fillStyle = style.rest;
      c.fillRect(box.x, y, box.w, ROW - 1);
      return;
    }
    const fn = this.tree.fn[box.node], f = this.functions[fn];
    const hit = this.hits && fn >= 0 && this.hits(fn);
    c.globalAlpha = this.hits && !hit ? 0.38 : above ? 0.55 : 1;
    c.fillStyle = hit ? style.match : f ? this.fill(f, box.node) : style.root;
    if (box.w > 12) {
      c.beginPath();
      c.roundRect(box.x, y, box.w - gap, ROW - 1, 2);
      c.fill();
    } else {
      c.fillRect(box.x, y, box.w - gap, ROW - 1);
    }
    if (box.w > 26) {
      const text = this.fit(f ? f.name : 'all', box.w - 10);
      if (text) {
        c.globalAlpha = this.hits && !hit ? 0.7 : above ? 0.8 : 1;
        c.fillStyle = hit ? style['match-ink'] : style.ink;
        c.fillText(text, box.x + 5, y + ROW / 2);
      }
    }
    c.globalAlpha = 1;
  }

  fill(f) { return this.style.fills[f.colour][f.shade]; }

  // fit cuts a text to a width. Letters are measured one by one, each once: a text need not be measured for every width that it is given.
  fit(text, width) {
    const dots = this.letter('…');
    let used = 0, cut = 0;
    for (let i = 0; i < text.length; i++) {
      used += this.letter(text[i]);
      if (used > width) return cut > 1 ? text.slice(0, cut) + '…' : '';
      if (used + dots <= width) cut = i + 1;
    }
    return text;
  }

  letter(c) {
    let w = this.letters.get(c);
    if (w === undefined) this.letters.set(c, w = this.context.measureText(c).width);
    return w;
  }

  outline(node, colour, thick) {
    const depth = this.tree.depth[node], box = (this.rows[depth] || []).find(b => b.node === node);
    if (!box) return;
    const c = this.context;
    c.strokeStyle = colour;
    c.lineWidth = thick;
    c.beginPath();
    c.roundRect(box.x + thick / 2, depth * ROW + thick / 2, Math.max(1, box.w - 1 - thick), ROW - 1 - thick, 2);
    c.stroke();
  }

  // at is the node at a mouse event, -1 for none.
  at(e) {
    const place = this.host.getBoundingClientRect();
    const x = e.clientX - place.left, row = this.rows[Math.floor((e.clientY - place.top) / ROW)] || [];
    let low = 0, high = row.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (row[middle].x <= x) low = middle + 1;
      else high = middle;
    }
    const box = row[low - 1];
    return box && x <= box.x + box.w ? box.node : -1;
  }

  // centre is the middle of a node's box in the window, null when it is not drawn.
  centre(node) {
    const box = (this.rows[this.tree.depth[node]] || []).find(b => b.node === node), place = this.host.getBoundingClientRect();
    return box ? {x: place.left + box.x + box.w / 2, y: place.top + this.tree.depth[node] * ROW + ROW / 2} : null;
  }

  // step selects the next of the drawn frames whose functions are hit, or, with by -1, the one before.
  step(hit, by) {
    this.settle();
    const found = [];
    for (const row of this.rows) for (const b of row) if (b.node > 0 && hit[this.tree.fn[b.node]]) found.push(b.node);
    if (!found.length) return;
    const now = found.indexOf(this.selected);
    const next = found[now < 0 ? (by > 0 ? 0 : found.length - 1) : (now + by + found.length) % found.length];
    this.select(next);
    this.reveal(next);
  }

  // reveal scrolls a node's row into view.
  reveal(node) {
    const y = this.host.getBoundingClientRect().top + this.tree.depth[node] * ROW, top = parseFloat(getComputedStyle(this.canvas).top) || 0;
    if (y < top) scrollBy(0, y - top - ROW);
    else if (y + 4 * ROW > innerHeight) scrollBy(0, y + 4 * ROW - innerHeight);
  }

  key(e) {
    if (e.ctrlKey || e.altKey || e.metaKey) return;
    this.settle();
    const {tree} = this, node = this.selected < 0 ? this.root : this.selected;
    let to = node;
    switch (e.key) {
    case 'ArrowUp':
      to = tree.parent[node];
      break;
    case 'ArrowDown': {
      let most = -1;
      const below = (this.rows[tree.depth[node] + 1] || []).filter(b => b.node >= 0 && tree.parent[b.node] === node);
      for (const b of below) if (most < 0 || tree.total[b.node] > tree.total[most]) most = b.node;
      to = most;
      break;
    }
    case 'ArrowLeft':
    case 'ArrowRight': {
      const row = (this.rows[tree.depth[node]] || []).filter(b => b.node >= 0), i = row.findIndex(b => b.node === node);
      to = row[i + (e.key === 'ArrowLeft' ? -1 : 1)]?.node ?? -1;
      break;
    }
    case 'Home':
      to = 0;
      break;
    case 'Enter':
    case ' ':
      e.preventDefault();
      this.zoom(node);
      return;
    case 'Backspace':
      if (this.root > 0) this.zoom(tree.parent[this.root]);
      return;
    default:
      return;
    }
    e.preventDefault();
    if (to < 0 || this.selected < 0 && e.key === 'ArrowUp') return;
    this.select(to);
    this.reveal(to);
  }
}
