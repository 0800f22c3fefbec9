'use strict';

// Page is everything around a graph: what is counted, search, what a frame is, keys.
class Page {
  constructor(profile) {
    Object.assign(this, {profile, functions: profile.functions, threads: profile.threads});
    this.all = 0; // what 100 % is
    this.hit = null; // by function: 1 for those that are searched for
    this.programs = groupThreads(this.threads);
    this.kinds = [...$('legend').children].reduce((w, e) => (w[e.dataset.colour] = e.dataset.word, w), []);
    this.graph = this.newGraph();
    this.callees = this.newTree();
    this.strips = this.newStrips();
    this.picker = new ThreadPicker(this.threads, this.programs, () => this.ofThreads(), () => {
      this.count();
      this.graph.canvas.focus({preventScroll: true});
    });
    this.events();
    this.listen();
    this.keys();
    const bar = $('bar'), measure = () => document.documentElement.style.setProperty('--bar', bar.offsetHeight + 'px');
    new ResizeObserver(measure).observe(bar);
    measure();
    this.count();
    this.describe(-1);
    document.documentElement.dataset.ready = Math.round(performance.now()); // for who waits for it
  }

  newGraph() { return new FlameGraph($('graph'), this.functions); }
  newTree() { return new Callees(this.profile); }
  newStrips() { return [new Strip($('strip'), this.profile, this.programs, () => this.inStrip(), () => this.count(), name => this.picker.chooseProgram(name))]; }
  callers() { return new Callers(this.callees); }

  // events offers them, where there are several.
  events() {
    this.profile.events.forEach((e, i) => $('event').append(Object.assign(element('option', '', e), {value: i})));
    $('event-label').hidden = this.profile.events.length < 2;
  }

  inStrip() {
    const {event, wanted} = this.chosen();
    return {of: e => e === event, wanted};
  }

  chosen() { return {event: Number($('event').value || 0), wanted: this.picker.wanted}; }

  // counted calls add with all weights that count, and how much, but for the choice of threads.
  counted(add) {
    const {event} = this.chosen(), {weights, times} = this.profile, {range} = this.strips[0];
    if (!range) weights.count.forEach((n, w) => { if (weights.event[w] === event) add(w, n); });
    else times.step.forEach((step, i) => { if (step >= range[0] && step < range[1] && weights.event[times.weight[i]] === event) add(times.weight[i], times.count[i]); });
  }

  // ofThreads is the samples of each thread, in the time that is shown.
  ofThreads() {
    const sums = new Float64Array(this.threads.length);
    this.counted((w, n) => sums[this.profile.weights.thread[w]] += n);
    return sums;
  }

  // count counts what is chosen, and shows it.
  count() {
    const {event, wanted} = this.chosen();
    this.callees.weigh((e, t) => e === event && (!wanted || wanted[t] === 1), this.strips[0].range);
    this.all = this.callees.total[0];
    this.counting();
  }

  // counting shows what has been counted.
  counting() {
    for (const s of this.strips) s.show();
    this.show();
    this.search();
    this.legend();
  }

  show() { this.graph.show($('reversed').checked ? this.callers() : this.callees); }

  search() {
    let test = null, wrong = '';
    try {
      test = matcher($('search').value, $('regex').checked);
    } catch (e) {
      wrong = 'not a regular expression';
    }
    $('search').setAttribute('aria-invalid', wrong !== '');
    this.hit = test && Uint8Array.from(this.functions, f => test(f.name) ? 1 : 0);
    const hits = test ? this.hit.reduce((n, h) => n + h, 0) : 0, hit = fn => this.hit[fn] === 1;
    this.graph.mark(test && hit);
    $('found').textContent = wrong || (!test ? '' : hits === 0 ? 'no match' : this.found(hit, `${number(hits)} ${hits === 1 ? 'function' : 'functions'}`));
    $('found').classList.toggle('none', wrong !== '' || hits === 0);
  }

  // found says how much is below the functions that are hit.
  found(hit, functions) {
    const {samples, frames} = this.callees.sum(hit);
    return `${share(samples, this.all)} of samples · ${functions} · ${number(frames)} ${frames === 1 ? 'place' : 'places'}`;
  }

  // step selects the next of the matches that are drawn.
  step(by) { if (this.hit) this.graph.step(this.hit, by); }

  // facts says what a frame is: what is counted, the number, the share.
  facts(node) {
    const {graph, callees, all} = this, {tree} = graph, f = this.functions[tree.fn[node]], samples = tree.total[node];
    const facts = [['total', number(samples), share(samples, all)]];
    if (tree === callees) facts.push(['self', number(tree.self[node]), share(tree.self[node], all)]);
    if (graph.root > 0 && node !== graph.root) facts.push(['of the zoomed frame', '', share(samples, tree.total[graph.root])]);
    if (f) {
      const sums = callees.everywhere(tree.fn[node]);
      if (tree !== callees || sums.total !== samples || sums.self !== tree.self[node]) {
        facts.push(['total, everywhere', number(sums.total), share(sums.total, all)], ['self, everywhere', number(sums.self), share(sums.self, all)]);
      }
    }
    return facts;
  }

  name(node) { return this.functions[this.graph.tree.fn[node]]?.name ?? 'all'; }

  place(node) {
    const f = this.functions[this.graph.tree.fn[node]], line = this.graph.tree.line[node];
    if (!f) return 'all samples';
    const words = [this.kinds[f.colour], f.image];
    if (f.file) words.push(f.file + (line ? ':' + line : ''));
    return words.filter(w => w).join(' · ');
  }

  figures(node) {
    return this.facts(node).filter(f => f[0] === 'total' || f[0] === 'self').map(f => `${f[0]} ${f[2]} (${f[1]})`).join('   ');
  }

  describe(node) {
    const line = $('detail');
    line.replaceChildren();
    if (node < 0) line.append(element('span', 'hint', 'Click a frame to zoom, / to search, ? for all keys'));
    else line.append(element('span', 'name', this.name(node)), element('span', 'place', this.place(node)), element('span', 'figures', this.figures(node)));
  }

  // table is what the box beside a frame says.
  table(node) {
    const table = element('table');
    for (const [what, n, percent] of this.facts(node)) {
      const row = table.appendChild(element('tr'));
      row.append(element('th', '', what), element('td', '', percent), element('td', '', n));
    }
    return table;
  }

  tip(node, x, y) {
    if (node < 0) $('tip').hidden = true;
    else showTip(x, y, element('div', 'name', this.name(node)), element('div', 'place', this.place(node)), this.table(node));
  }

  // legend says how many samples end in code of each kind.
  legend() {
    const sums = [], {callees} = this;
    for (let i = 1; i < callees.self.length; i++) {
      const c = this.functions[callees.fn[i]].colour;
      sums[c] = (sums[c] || 0) + callees.self[i];
    }
    const present = new Set(this.functions.map(f => f.colour));
    for (const e of $('legend').children) {
      e.hidden = !present.has(Number(e.dataset.colour));
      const sum = sums[e.dataset.colour];
      e.lastElementChild.textContent = sum ? share(sum, this.all) : ''; // none ends in a process
    }
  }

  listen() {
    const {graph} = this, {host} = graph;
    $('event').addEventListener('change', () => this.count());
    $('reversed').addEventListener('change', () => this.show());
    $('search').addEventListener('input', () => this.search());
    $('regex').addEventListener('change', () => { this.search(); $('search').focus(); });
    $('search').addEventListener('keydown', e => {
      if (e.key === 'Enter') this.step(e.shiftKey ? -1 : 1);
      if (e.key === 'ArrowDown') graph.canvas.focus();
    });
    host.addEventListener('point', e => {
      this.tip(e.detail.node, e.detail.x, e.detail.y);
      this.describe(e.detail.node < 0 ? graph.selected : e.detail.node);
    });
    host.addEventListener('select', e => this.describe(e.detail.node));
    host.addEventListener('zoom', () => {
      showCrumbs($('crumbs'), graph, node => this.name(node));
      $('reset').disabled = graph.root === 0;
      this.tip(-1);
      this.describe(graph.selected);
    });
    addEventListener('scroll', () => this.tip(-1), {passive: true});
    $('reset').addEventListener('click', () => graph.zoom(0));
    $('keys').addEventListener('click', () => $('help').showModal());
  }

  // keys listens to them, wherever the focus is.
  keys() {
    addEventListener('keydown', e => {
      if (this.picker.open) return;
      const searching = document.activeElement === $('search');
      if (e.key.toLowerCase() === 'f' && (e.ctrlKey || e.metaKey) && !searching || e.key === '/' && !searching && !e.ctrlKey) {
        e.preventDefault(); // pressed once more, Ctrl-F is the browser's own search
        $('search').focus();
        $('search').select();
      } else if (e.key === 'Escape' && !$('help').open) {
        this.escape(searching);
      } else if (!searching && !e.ctrlKey && !e.metaKey && !e.altKey && document.activeElement.tagName !== 'SELECT') {
        this.key(e);
      }
    });
  }

  // escape ends what was begun last.
  escape(searching) {
    const narrowed = this.strips.find(s => s.range);
    if (searching && !$('search').value) this.graph.canvas.focus();
    else if ($('search').value) {
      $('search').value = '';
      this.search();
    } else if (this.graph.root > 0) this.graph.zoom(0);
    else if (narrowed) narrowed.choose(null);
    else this.graph.select(-1);
  }

  key(e) {
    if (e.key === '?') $('help').showModal();
    else if (e.key === 'n') this.step(1);
    else if (e.key === 'N') this.step(-1);
    else if (e.key === 'r') $('reversed').click();
    else if (e.key.startsWith('Arrow') && document.activeElement === document.body) {
      this.graph.canvas.focus();
      this.graph.key(e);
    }
  }
}

// start shows the page of the profile that it holds.
async function start(kind) {
  try {
    const data = $('data');
    const profile = await unpack(data.textContent);
    data.remove();
    new kind(profile);
  } catch (e) {
    $('detail').textContent = `This page cannot be shown: ${e.message}`;
    throw e;
  }
}
