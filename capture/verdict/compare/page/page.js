'use strict';

// TwinGraph is a flame graph whose functions are coloured by how much their share differs from the twin's.
class TwinGraph extends FlameGraph {
  colours() {
    super.colours();
    const css = getComputedStyle(document.documentElement), {style} = this;
    style.difference = Array.from({length: 2 * STEPS.length + 1}, (_, i) => css.getPropertyValue('--diff' + i).trim());
    style.hatched = hatched(this.context, css.getPropertyValue('--hatch-ground').trim(), css.getPropertyValue('--hatch').trim());
  }

  fill(f) {
    if (f.hatched) return this.style.hatched;
    return this.byKind ? super.fill(f) : this.style.difference[STEPS.length + step(f.difference)];
  }
}

// hatched is a pattern for what is no code.
function hatched(context, ground, stroke) {
  const tile = Object.assign(document.createElement('canvas'), {width: 6, height: 6}), c = tile.getContext('2d');
  c.fillStyle = ground;
  c.fillRect(0, 0, 6, 6);
  c.strokeStyle = stroke;
  c.lineWidth = 1.5;
  for (const x of [-6, 0, 6]) {
    c.moveTo(x - 1, 7);
    c.lineTo(x + 7, -1);
  }
  c.stroke();
  return context.createPattern(tile, 'repeat');
}

const points = difference => {
  const text = (100 * Math.abs(difference)).toFixed(1);
  return (text === '0.0' ? '' : difference < 0 ? '−' : '+') + text;
};

// Side is one of the two graphs. Functions of the same name and image have the same key on both sides, whatever else tells them apart.
class Side {
  constructor(host, profile, keys) {
    this.host = host;
    this.name = host.dataset.name;
    this.part = name => host.querySelector(name);
    this.profile = profile;
    this.functions = profile.functions;
    this.callees = new Callees(profile);
    for (const f of this.functions) {
      const key = f.image + '\0' + f.name;
      if (!keys.has(key)) keys.set(key, keys.size);
      f.key = keys.get(key);
      f.hatched = f.colour === Number($('hatched').dataset.colour);
    }
    this.keys = Int32Array.from(this.callees.fn, fn => fn < 0 ? -1 : this.functions[fn].key); // of the nodes of callees
    this.graph = new TwinGraph(this.part('.graph'), this.functions);
    this.graph.canvas.setAttribute('aria-label', `Flame graph of ${this.name}: arrow keys move between frames, Enter zooms, x goes to the other one`);
  }

  // count counts the samples of the programs that are wanted (by thread, null for all) in a range of steps (null for all): for the graph, and
  // of each function's key, with what it calls (each sample once) and by itself.
  count(keys, wanted, range) {
    const {callees} = this;
    callees.weigh((_, t) => !wanted || wanted[t] === 1, range);
    this.all = callees.total[0];
    this.total = new Float64Array(keys);
    this.self = new Float64Array(keys);
    const open = new Int32Array(keys); // the end of the outermost frame that is being passed
    for (let i = 1; i < callees.fn.length; i++) {
      const k = this.keys[i];
      this.self[k] += callees.self[i];
      if (i < open[k]) continue;
      open[k] = callees.end[i];
      this.total[k] += callees.total[i];
    }
  }

  of(sums, key) { return this.all ? sums[key] / this.all : 0; }
  key(node) { return this.functions[this.graph.tree.fn[node]]?.key ?? -1; }
  called(node) { return this.functions[this.graph.tree.fn[node]]?.name ?? 'all'; }
  portion(node) { return this.all ? this.graph.tree.total[node] / this.all : 0; }

  // find is the frame where a path of keys leads. Frames that this side has not are passed over, and so are those that only it has, as long as
  // there are not too many of them: what one side has lost is not to hide the rest. Where the path's end is not found, node is the last
  // frame that is.
  find(path) {
    const {tree} = this.graph;
    let node = 0, found = true, exact = true, budget = 2e6; // of frames that are looked at
    for (const key of path) {
      let next = -1;
      tree.children(node, c => { if (this.key(c) === key && (next < 0 || tree.total[c] > tree.total[next])) next = c; });
      if (next < 0) {
        exact = false;
        if (budget > 0) next = this.heaviest(key, node);
        budget -= this.callees.end[node] - node;
      }
      found = next >= 0;
      if (found) node = next;
    }
    return {node, found, exact};
  }

  // heaviest is the frame of a key with most samples below a node, -1 for none.
  heaviest(key, below) {
    const {callees, keys} = this;
    if (this.graph.tree !== callees) return -1;
    let most = -1;
    for (let i = below + 1; i < callees.end[below]; i++) {
      if (keys[i] === key && (most < 0 || callees.total[i] > callees.total[most])) most = i;
    }
    return most;
  }
}

// percentOf is a share as the tables have it.
function percentOf(share) {
  if (!share) return '·';
  return share < 0.0005 ? '<0.1\u00a0%' : `${(100 * share).toFixed(share < 1 && share >= 0.9995 ? 3 : 1)}\u00a0%`;
}

// setBar sets how long a bar is.
function setBar(svg, from, share) {
  const rect = svg?.querySelector('rect');
  rect?.setAttribute('x', 100 * from);
  rect?.setAttribute('width', 100 * share);
}

// TILES are the numbers at the top that a sample may count for, by bit: see narrow.go.
const TILES = ['usable', 'false', 'reaches'];

// Tables are those above the graphs. They say what the samples count for that are shown; some are about the whole recording only.
class Tables {
  constructor(left, sides, keys) {
    Object.assign(this, {left, sides, keys, before: null});
    // What a sample counts for is its event: see narrow.go.
    this.marks = left.profile.events.map(text => {
      const [kind, lost, tiles, fn, image, calls] = text.split(' ');
      return {kind: Number(kind), lost: Number(lost), tiles: Number(tiles), fn: Number(fn), image: Number(image), calls: calls ? calls.split(',').map(Number) : []};
    });
    this.classes = [...document.querySelectorAll('.class')];
    for (const table of document.querySelectorAll('table.list')) this.shorten(table);
    for (const button of document.querySelectorAll('button.sort')) button.addEventListener('click', () => this.sort(button));
    for (const input of document.querySelectorAll('#by input')) input.addEventListener('change', () => this.by(input.value));
    this.by(document.querySelector('#by input').value);
  }

  // by shows one of the tables of rows.
  by(key) {
    for (const table of document.querySelectorAll('table.by')) {
      const hide = table.id !== `by-${key}`, rest = table.nextElementSibling;
      table.hidden = hide;
      if (rest?.matches('button.rest')) rest.hidden = hide;
    }
  }

  // sort sorts a table by the column of a button: the largest first, or the smallest if it is sorted so already.
  sort(button) {
    const cell = button.parentNode, table = cell.closest('table'), body = table.tBodies[0], value = row => Number(row.cells[cell.cellIndex].dataset.value);
    const down = cell.getAttribute('aria-sort') !== 'descending';
    for (const th of table.tHead.rows[0].cells) th.removeAttribute('aria-sort');
    cell.setAttribute('aria-sort', down ? 'descending' : 'ascending');
    body.append(...[...body.rows].sort((a, b) => down ? value(b) - value(a) : value(a) - value(b)));
  }

  rows(section) { return [...document.querySelectorAll(`#${section} tbody tr`)]; }

  // shorten shows the first rows of a table at first.
  shorten(table) {
    const shown = 8, rows = () => table.tBodies[0].rows.length;
    if (rows() <= shown + 2) return;
    table.classList.add('short');
    const button = element('button', 'rest', `All ${number(rows())}`);
    button.addEventListener('click', () => {
      const short = table.classList.toggle('short');
      button.textContent = short ? `All ${number(rows())}` : 'Fewer';
    });
    table.after(button);
  }

  // narrow has the tables say what the samples of some programs in a range of steps count for; null for all.
  narrow(wanted, range) {
    document.body.classList.toggle('narrowed', Boolean(wanted || range));
    if (!wanted && !range) {
      for (const [e, content] of this.before || []) e.replaceChildren(...content.map(n => n.cloneNode(true)));
      for (const e of this.classes) e.classList.toggle('none', e.tagName === 'DIV'); // without an example, as none was sampled
      return;
    }
    // The page was written with all: that is kept, and comes back.
    const parts = '#tiles b[id], #samples, .interval, #shares, .class .row, .class.row, .list:not(.by) tbody';
    this.before ||= [...$('tables').querySelectorAll(parts)].map(e => [e, [...e.childNodes].map(n => n.cloneNode(true))]);
    const sums = this.count(wanted, range);
    this.tiles(sums);
    this.ofClasses(sums);
    this.list('blame-functions', sums.functions, sums.blamed);
    this.list('blame-images', sums.images, sums.blamed);
    this.list('wrong-callers', sums.calls, sums.samples);
    this.differ();
  }

  count(wanted, range) {
    const {weights, times} = this.left.profile, kinds = this.classes.length, zeros = n => new Float64Array(n);
    const sums = {samples: 0, blamed: 0, classes: zeros(kinds), lost: zeros(kinds), tiles: zeros(TILES.length), stacks: this.classes.map(() => new Set()), all: new Set()};
    for (const [name, section] of [['functions', 'blame-functions'], ['images', 'blame-images'], ['calls', 'wrong-callers']]) sums[name] = zeros(this.rows(section).length);
    const add = (w, n) => {
      if (wanted && !wanted[weights.thread[w]]) return;
      const mark = this.marks[weights.event[w]], node = weights.node[w];
      sums.samples += n;
      sums.classes[mark.kind] += n;
      sums.lost[mark.kind] += n * mark.lost;
      for (let i = 0; i < TILES.length; i++) if (mark.tiles >> i & 1) sums.tiles[i] += n;
      sums.stacks[mark.kind].add(node);
      sums.all.add(node);
      if (mark.image >= 0) sums.blamed += n;
      if (mark.fn in sums.functions) sums.functions[mark.fn] += n;
      if (mark.image in sums.images) sums.images[mark.image] += n;
      for (const c of mark.calls) sums.calls[c] += n;
    };
    if (!range) weights.count.forEach((n, w) => add(w, n));
    else times.step.forEach((step, i) => { if (step >= range[0] && step < range[1]) add(times.weight[i], times.count[i]); });
    return sums;
  }

  // The intervals are those of the whole recording.
  tiles({samples, tiles}) {
    TILES.forEach((id, i) => { $(id).textContent = tiles[i] ? percentOf(tiles[i] / samples) : '0\u00a0%'; });
    $('samples').textContent = number(samples);
    for (const e of document.querySelectorAll('.interval')) e.textContent = '';
  }

  ofClasses({samples, classes, lost, stacks, all}) {
    let from = 0;
    this.classes.forEach((e, i) => {
      const share = samples ? classes[i] / samples : 0, part = name => e.querySelector(name);
      part('.share').textContent = percentOf(share);
      part('.share').title = `${number(classes[i])} samples`;
      part('.stacks').textContent = percentOf(all.size ? stacks[i].size / all.size : 0);
      part('.stacks').title = `${number(stacks[i].size)} distinct stacks`;
      part('.lost').textContent = lost[i] ? (lost[i] / classes[i]).toFixed(1) : '·';
      setBar(part('.bar'), 0, share);
      const rect = $('shares').querySelector(`.c-${e.dataset.key}`);
      rect?.setAttribute('x', 100 * from);
      rect?.setAttribute('width', 100 * share);
      from += share;
      e.classList.toggle('none', !classes[i]);
    });
  }

  // list writes the numbers of a table's rows, and sorts these.
  list(section, sums, of) {
    const rows = this.rows(section);
    rows.forEach((row, i) => { row.dataset.row ??= i; });
    for (const row of rows) {
      const n = sums[row.dataset.row], share = of ? n / of : 0, last = row.cells[row.cells.length - 1];
      last.textContent = percentOf(share);
      last.title = `${number(n)} samples`;
      setBar(row.querySelector('.bar'), 0, share);
    }
    rows.sort((a, b) => sums[b.dataset.row] - sums[a.dataset.row] || a.dataset.row - b.dataset.row);
    rows[0]?.parentNode.append(...rows);
  }

  // differ lists the functions whose share differs most, which are others than before.
  differ() {
    const body = document.querySelector('#differ tbody'), [left, right] = this.sides, rows = [];
    if (!body) return;
    for (const key of this.keys.values()) {
      const a = left.of(left.total, key), b = right.of(right.total, key);
      if (left.total[key] !== right.total[key]) rows.push({key, a, b, difference: b - a});
    }
    rows.sort((x, y) => Math.abs(y.difference) - Math.abs(x.difference) || x.key - y.key);
    const most = Math.abs(rows[0]?.difference ?? 0), names = [...this.keys.keys()];
    body.replaceChildren(...rows.slice(0, 100).map(({key, a, b, difference}) => {
      const [image, name] = names[key].split('\0'), row = element('tr'), half = Math.abs(difference) / most / 2;
      const bar = document.querySelector('svg.bar').cloneNode(true);
      bar.firstElementChild.setAttribute('class', difference < 0 ? 'less' : 'more');
      setBar(bar, difference < 0 ? 0.5 - half : 0.5, half);
      row.insertCell().append(element('button', 'fn', name), ' ', element('small', '', image));
      for (const content of [percentOf(a), percentOf(b), bar, Math.abs(difference) < 0.0005 ? '0.0' : points(difference)]) row.insertCell().append(content);
      for (const i of [1, 2, 4]) row.cells[i].className = 'n';
      return row;
    }));
  }
}

async function main() {
  const keys = new Map(), sides = [];
  for (const id of ['left', 'right']) {
    const data = $(id + '-data');
    sides.push(new Side($(id), await unpack(data.textContent), keys));
    data.remove();
  }
  const [left, right] = sides, other = side => side === left ? right : left;
  const difference = key => right.of(right.total, key) - left.of(left.total, key);
  let active = left; // where the reader is
  let leading = null; // the side that zooms the other

  // twin is the frame of the other side that belongs to a frame: on the same path, or else the heaviest of the same function, or else
  // (found is false then) its last caller that is there.
  function twin(side, node) {
    const to = other(side), t = to.find(side.graph.path(node).map(n => side.key(n)));
    if (t.found) return {...t, place: true, note: t.exact ? '' : 'with other callers on the way'};
    const elsewhere = to.heaviest(side.key(node), 0);
    if (elsewhere < 0) return {...t, note: 'not on these stacks'};
    return {node: elsewhere, found: true, note: 'called by another'};
  }

  // What is counted: all, or a program, or a part of the time. Both sides have the same.
  let program = null;
  const {threads} = left.profile, programs = groupThreads(threads), tables = new Tables(left, sides, keys);
  const wanted = () => program === null ? null : Uint8Array.from(threads, t => t.comm === program ? 1 : 0);
  const strip = new Strip($('strip'), left.profile, programs, () => ({of: () => true, wanted: wanted()}), count, name => {
    program = program === name ? null : name;
    count();
  });

  function count() {
    const only = wanted(), {range} = strip;
    for (const s of sides) {
      s.count(keys.size, only, range);
      s.part('.count').textContent = `${number(s.all)} samples`;
    }
    for (const s of sides) for (const f of s.functions) f.difference = difference(f.key);
    tables.narrow(only, range);
    strip.show();
    const words = range ? [`${time(strip.at(range[0]))} to ${time(strip.at(range[1]))}`] : [];
    if (program !== null) words.push(program);
    $('narrowed').hidden = !words.length;
    $('narrowed').querySelector('output').textContent = words.join(' · ');
    show();
  }

  function widen() {
    program = null;
    if (strip.range) strip.choose(null);
    else count();
  }
  $('narrowed').querySelector('button').addEventListener('click', widen);

  function show() {
    for (const s of sides) {
      leading = s;
      s.graph.show($('reversed').checked ? new Callers(s.callees) : s.callees);
      leading = null;
      zoomed(s, '');
    }
    describe(left, -1);
    search();
  }

  function zoomed(side, note) {
    showCrumbs(side.part('.crumbs'), side.graph, n => side.called(n), 2);
    side.part('.note').textContent = note;
    $('reset').disabled = sides.every(s => s.graph.root === 0);
    $('tip').hidden = true;
  }

  function follow(side) {
    const to = other(side), t = twin(side, side.graph.root);
    leading = side;
    to.graph.zoom(t.node);
    leading = null;
    zoomed(side, '');
    zoomed(to, t.note);
  }

  for (const s of sides) {
    const {graph} = s, to = other(s);
    graph.host.addEventListener('zoom', () => { if (!leading) follow(s); });
    graph.host.addEventListener('select', e => {
      active = s;
      const t = e.detail.node < 0 ? null : twin(s, e.detail.node);
      to.graph.selected = t?.found ? t.node : -1;
      to.graph.schedule();
      describe(s, e.detail.node);
    });
    let last = -1;
    graph.host.addEventListener('point', e => {
      const {node, x, y} = e.detail;
      if (node !== last) {
        last = node;
        const t = node < 0 ? null : twin(s, node);
        to.graph.pointed = t?.found ? t.node : -1;
        to.graph.schedule();
        describe(s, node < 0 ? s.graph.selected : node);
      }
      tip(s, node, x, y);
    });
    graph.canvas.addEventListener('focus', () => active = s);
  }
  addEventListener('scroll', () => $('tip').hidden = true, {passive: true});
  $('reversed').addEventListener('change', show);
  $('reset').addEventListener('click', reset);
  function reset() { left.graph.zoom(0); }

  // Search.
  function search() {
    let test = null, wrong = '';
    try {
      test = matcher($('search').value, $('regex').checked);
    } catch (e) {
      wrong = 'not a regular expression';
    }
    $('search').setAttribute('aria-invalid', wrong !== '');
    const found = new Set();
    for (const s of sides) {
      s.hit = test && s.functions.map(f => test(f.name));
      if (test) s.functions.forEach((f, i) => { if (s.hit[i] && (s.total[f.key] > 0 || other(s).total[f.key] > 0)) found.add(f.key); });
      s.graph.mark(s.hit && (fn => s.hit[fn]));
      const sum = test ? s.callees.sum(fn => s.hit[fn]) : null;
      const out = s.part('.caption .found');
      out.textContent = !test ? '' : `${share(sum.samples, s.all)} matched`;
      out.classList.toggle('none', test !== null && sum.samples === 0);
    }
    $('found').textContent = wrong || (!test ? '' : !found.size ? 'no match' : `${number(found.size)} ${found.size === 1 ? 'function' : 'functions'}`);
    $('found').classList.toggle('none', wrong !== '' || test !== null && !found.size);
  }

  // next selects the next of the matches that are drawn.
  function next(by) {
    const {graph, hit} = active;
    if (hit) graph.step(hit, by);
  }

  $('search').addEventListener('input', search);
  $('regex').addEventListener('change', () => { search(); $('search').focus(); });
  $('search').addEventListener('keydown', e => {
    if (e.key === 'Enter') next(e.shiftKey ? -1 : 1);
    if (e.key === 'ArrowDown') active.graph.canvas.focus();
  });

  // see scrolls to the graphs where they are not in the window.
  function see() {
    if ($('graphs').getBoundingClientRect().top > innerHeight / 3) $('graphs').scrollIntoView();
  }

  // What a frame is.
  const percent = of => share(of, 1);
  function figures(side, node) {
    const t = twin(side, node), rows = [];
    const row = (what, a, b) => rows.push([what, a, b, a !== null && b !== null ? points(b - a) : '']);
    const here = side.portion(node), there = t.place ? other(side).portion(t.node) : null;
    row('in this place', ...(side === left ? [here, there] : [there, here]));
    const key = side.key(node);
    if (key >= 0) {
      row('function, total', left.of(left.total, key), right.of(right.total, key));
      row('function, self', left.of(left.self, key), right.of(right.self, key));
    }
    return rows;
  }

  const kinds = [];
  for (const e of document.querySelectorAll('[data-colour]')) kinds[e.dataset.colour] = e.dataset.word;

  function place(side, node) {
    const f = side.functions[side.graph.tree.fn[node]];
    return !f ? `all samples of ${side.name}` : f.hatched ? 'a frame pointer led to what is no code: its value is nobody’s business' : `${kinds[f.colour]} · ${f.image}`;
  }

  function tip(side, node, x, y) {
    if (node < 0) {
      $('tip').hidden = true;
      return;
    }
    const table = element('table'), head = table.createTHead().insertRow(), body = table.createTBody();
    for (const text of ['', left.name, right.name, 'points']) head.append(element('th', '', text));
    for (const [what, a, b, d] of figures(side, node)) {
      const row = body.insertRow();
      row.append(element('th', '', what), ...[a, b].map(v => element('td', '', v === null ? '–' : percent(v))), element('td', '', d));
    }
    showTip(x, y, element('div', 'name', side.called(node)), element('div', 'place', place(side, node)), table);
  }

  function describe(side, node) {
    const line = $('detail');
    if (node < 0) {
      line.replaceChildren(element('span', 'hint', 'Click a frame to zoom both graphs, / to search, ? for all keys'));
      return;
    }
    const rows = figures(side, node), [what, a, b, d] = rows[Math.min(1, rows.length - 1)];
    const text = `${what}   ${left.name} ${a === null ? '–' : percent(a)}   ${right.name} ${b === null ? '–' : percent(b)}   ${d && d + ' points'}`;
    line.replaceChildren(element('span', 'name', side.called(node)), element('span', 'place', place(side, node)), element('span', 'figures', text));
  }

  // Colours.
  const used = new Set();
  for (const s of sides) for (const fn of s.callees.fn) if (fn >= 0) used.add(s.functions[fn].colour);
  for (const e of $('legend').children) e.hidden = !used.has(Number(e.dataset.colour));
  $('hatched').hidden = !used.has(Number($('hatched').dataset.colour));
  function colour() {
    const byKind = $('kind').checked;
    $('scale').hidden = byKind;
    $('legend').hidden = !byKind;
    for (const s of sides) {
      s.graph.byKind = byKind;
      s.graph.schedule();
    }
  }
  for (const id of ['difference', 'kind']) $(id).addEventListener('change', colour);

  // Functions of the tables lead to the graphs.
  $('tables').addEventListener('click', e => {
    const b = e.target.closest('button.fn');
    if (!b) return;
    $('search').value = b.textContent;
    $('regex').checked = false;
    search();
    $('graphs').scrollIntoView();
  });

  // Keys, wherever the focus is.
  addEventListener('keydown', e => {
    const searching = document.activeElement === $('search');
    if (e.key.toLowerCase() === 'f' && (e.ctrlKey || e.metaKey) && !searching || e.key === '/' && !searching && !e.ctrlKey) {
      e.preventDefault(); // pressed once more, Ctrl-F is the browser's own search
      see();
      $('search').focus({preventScroll: true});
      $('search').select();
    } else if (e.key === 'Escape' && !$('help').open) {
      if (searching && !$('search').value) active.graph.canvas.focus();
      else if ($('search').value) {
        $('search').value = '';
        search();
      } else if (sides.some(s => s.graph.root > 0)) reset();
      else if (strip.range) strip.choose(null);
      else if (program !== null) widen();
      else active.graph.select(-1);
    } else if (!searching && !e.ctrlKey && !e.metaKey && !e.altKey) {
      if (e.key === '?') $('help').showModal();
      else if (e.key === 'n') next(1);
      else if (e.key === 'N') next(-1);
      else if (e.key === 'r') $('reversed').click();
      else if (e.key === 'c') $($('kind').checked ? 'difference' : 'kind').click();
      else if (e.key === 'x') cross();
    }
  });
  $('keys').addEventListener('click', () => $('help').showModal());

  // cross goes to the other graph.
  function cross() {
    const from = active, node = from.graph.selected, to = other(from);
    see();
    to.graph.canvas.focus({preventScroll: true});
    if (node >= 0) {
      const t = twin(from, node);
      to.graph.select(t.node);
      to.graph.reveal(t.node);
    }
  }

  const bar = $('bar'), measure = () => document.documentElement.style.setProperty('--bar', bar.offsetHeight + 'px');
  new ResizeObserver(measure).observe(bar);
  measure();
  colour();
  count();
  document.documentElement.dataset.ready = Math.round(performance.now()); // for who waits for it
}

main().catch(e => {
  $('detail').textContent = `This page cannot be shown: ${e.message}`;
  throw e;
});
