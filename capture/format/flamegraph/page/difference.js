'use strict';

// DifferenceGraph is a flame graph whose frames are coloured by how much they differ, grey for what may be the error of sampling.
class DifferenceGraph extends FlameGraph {
  colours() {
    super.colours();
    const css = getComputedStyle(document.documentElement);
    this.style.difference = Array.from({length: 2 * STEPS.length + 1}, (_, i) => css.getPropertyValue('--diff' + i).trim());
  }

  fill(_, node) {
    const e = this.tree.change(node).by(this.by);
    return this.style.difference[STEPS.length + (e.excludesZero ? step(e.value / this.scale) : 0)];
  }
}

// withError writes a difference and its error, to two digits of the error or one.
function withError(e, scale = 1) {
  const letter = [[1e12, 'T'], [1e9, 'G'], [1e6, 'M']].find(([n]) => Math.max(Math.abs(e.value), e.error) * scale >= n / 10) || [1, ''];
  const value = e.value * scale / letter[0], error = e.error * scale / letter[0];
  const digits = error >= 9.5 ? 0 : error >= 0.95 ? 1 : error >= 0.02 ? 2 : 3;
  return `${value < 0 ? '−' : '+'}${Math.abs(value).toFixed(digits)}${letter[1]} ±${error.toFixed(digits)}`;
}

// inOne reports whether only one recording has a function: it was added, or is gone.
const inOne = c => !c.total.samples[0] || !c.total.samples[1];

const tint = e => !e.excludesZero ? 'chance' : e.value > 0 ? 'more' : 'less';

// DifferencePage shows two recordings as one graph.
class DifferencePage extends Page {
  newGraph() { return new DifferenceGraph($('graph'), this.functions); }
  newTree() { return new DifferentCallees(this.profile, this.seconds()); }
  callers() { return new DifferentCallers(this.callees); }

  // seconds is how long the recordings are.
  seconds() { return ['A', 'B'].map(side => Number($('strip-' + side).dataset.seconds)); }

  newStrips() {
    const seconds = this.seconds(), longest = Math.max(...seconds);
    return ['A', 'B'].map((side, i) => {
      const host = $('strip-' + side);
      host.style.width = `calc((100% - 24px) * ${longest ? seconds[i] / longest : 1})`;
      return new Strip(host, this.profile, this.programs, () => {
        const {events} = this.pair();
        return {of: e => e === events[i], wanted: this.picker.wanted, ranked: e => events.includes(e)};
      }, () => this.count(), name => this.picker.chooseProgram(name), seconds[i]);
    });
  }

  events() {
    $('event-label').hidden = $('event').options.length < 2;
    for (const input of document.querySelectorAll('[name=wide], [name=by]')) input.addEventListener('change', () => this.count());
  }

  // pair is the events that are compared: {events, each, unit}, of A and B.
  pair() {
    const d = $('event').selectedOptions[0]?.dataset;
    if (!d) return {events: [-1, -1], each: [0, 0], unit: ''};
    return {events: [Number(d.a), Number(d.b)], each: [Number(d.eachA), Number(d.eachB)], unit: d.unit};
  }

  counted(add) {
    const {events} = this.pair(), {weights, times} = this.profile;
    this.strips.forEach(({range}, side) => {
      if (!range) weights.count.forEach((n, w) => { if (weights.event[w] === events[side]) add(w, n); });
      else times.step.forEach((step, i) => { if (step >= range[0] && step < range[1] && weights.event[times.weight[i]] === events[side]) add(times.weight[i], times.count[i]); });
    });
  }

  count() {
    const wide = document.querySelector('[name=wide]:checked').value, pair = this.pair(), {callees, graph} = this;
    this.amounts = $('amounts').checked;
    callees.count(pair, this.picker.wanted, this.strips.map(s => s.range), wide === 'both' ? wide : Number(wide), this.amounts);
    this.all = callees.total[0];
    graph.by = this.amounts ? 'amount' : 'share';
    const [a, b] = callees.sides.map(s => s.all * s.each);
    graph.scale = this.amounts ? a || b || 1 : 1;
    $('amount').textContent = pair.unit === 's' ? 'CPU s' : pair.unit;
    $('total').textContent = `total ${this.amounts ? $('amount').textContent : 'points'}`;
    $('by').hidden = !(a || b);
    this.counting();
    this.list();
  }

  // decides is what says whether something has changed.
  decides(change) { return change.by(this.graph.by); }

  // why says why a function has changed, by itself (0: or only one recording has it), by what it calls alone (1), or perhaps by chance (2), and by
  // which difference it is sorted, as 'unspool report' does.
  why(c) {
    const self = this.decides(c.self), total = this.decides(c.total);
    if (total.excludesZero && inOne(c)) return {rank: 0, by: total};
    if (self.excludesZero) return {rank: 0, by: self};
    if (total.excludesZero) return {rank: 1, by: total};
    return {rank: 2, by: Math.abs(self.value) >= Math.abs(total.value) ? self : total};
  }

  // raise moves a function that only one recording has above those of its callers that may have changed by no more than it. The list is sorted.
  raise(list) {
    const {fn, parent, sides: [a, b]} = this.callees, place = new Map(list.map((c, i) => [c.fn, i])), to = list.map((_, i) => i);
    for (let node = 1; node < fn.length; node++) {
      const i = place.get(fn[node]);
      if (i === undefined || !inOne(list[i]) || a.total[node] + b.total[node] === 0) continue;
      for (let up = parent[node]; up > 0 && fn[up] !== fn[node]; up = parent[up]) {
        const caller = place.get(fn[up]);
        if (caller === undefined || inOne(list[caller])) continue;
        const {value, error} = list[caller].by;
        if (Math.abs(value) - error <= Math.abs(list[i].by.value)) to[i] = Math.min(to[i], caller);
      }
    }
    return list.map((_, i) => i).sort((i, j) => to[i] - to[j] || Number(to[i] === i) - Number(to[j] === j) || i - j).map(i => list[i]);
  }

  // list fills the table of functions: what has changed by itself, then what has by what it calls.
  list() {
    const {callees} = this, size = c => Math.abs(this.decides(c).value);
    const list = callees.list(f => this.kinds[f.colour] !== 'process').map(c => ({...c, ...this.why(c)}));
    list.sort((x, y) => x.rank - y.rank || Math.abs(y.by.value) - Math.abs(x.by.value) || size(y.self) - size(x.self) || size(y.total) - size(x.total) || x.fn - y.fn);
    const changed = this.raise(list.filter(c => c.rank < 2)), others = list.filter(c => c.rank === 2);
    const shown = changed.length ? changed.slice(0, 500) : others.slice(0, 5);
    $('changes').querySelector('tbody').replaceChildren(...shown.map(c => this.row(c)));
    this.sum();
    const most = Math.max(0, ...others.map(c => Math.max(size(c.self), size(c.total))));
    const limit = !this.amounts ? `${(100 * most).toFixed(1)} points` : this.pair().unit === 's' ? `${most.toFixed(2)} s` : number(Math.round(most));
    const text = !changed.length ? `No function differs by more than the error of sampling. The largest of ${number(others.length)} differences are shown.` :
      others.length ? `${number(others.length)} ${others.length === 1 ? 'function' : 'functions'} may differ by chance, by up to ${limit}` : '';
    $('rest').replaceChildren(element('span', '', text));
    const few = 8;
    $('changes').classList.toggle('short', shown.length > few + 2);
    if (shown.length <= few + 2) return;
    const button = element('button', '', `All ${number(changed.length)} that differ`);
    button.addEventListener('click', () => { $('changes').classList.remove('short'); button.remove(); });
    $('rest').prepend(button);
  }

  row({fn, self, total}) {
    self.exactly();
    total.exactly();
    const f = this.functions[fn], row = element('tr'), name = row.insertCell(), {sides} = this.callees;
    const find = element('button', 'fn', f.name);
    find.title = 'Find in the graph';
    find.addEventListener('click', () => {
      $('search').value = f.name;
      $('regex').checked = false;
      this.search();
      this.graph.step(this.hit, 1);
    });
    name.append(find, ' ', element('small', '', f.image));
    const cell = (className, text) => { row.insertCell().append(element('span', className, text)); row.lastChild.className = 'n'; };
    const none = self.samples[0] + self.samples[1] === 0;
    sides.forEach((s, i) => cell('', self.samples[i] ? share(self.samples[i], s.all) : '·'));
    cell(none ? '' : tint(self.share), none ? '·' : withError(self.share, 100));
    cell(none ? '' : tint(self.amount), none ? '·' : withError(self.amount));
    const decisive = this.decides(total);
    cell(tint(decisive), withError(decisive, this.amounts ? 1 : 100));
    const [a, b] = sides.map((s, i) => share(total.samples[i], s.all));
    row.lastChild.title = `A ${a}, B ${b}: ${withError(total.share, 100)} points, ${withError(total.amount)} ${$('amount').textContent}`;
    return row;
  }

  // sum says how much all samples stand for.
  sum() {
    const {sides} = this.callees, {unit} = this.pair(), timed = unit === 's';
    const [a, b] = sides.map(s => s.all * s.each), write = n => timed ? `${n.toFixed(2)} s` : number(Math.round(n));
    const {amount} = sides[0].all + sides[1].all ? this.callees.judge(sides.map(s => s.all), add => add(0, this.profile.weights.node.length), quantile(1)).exactly() : {amount: null};
    $('sum').replaceChildren(`${timed ? 'CPU time' : unit || 'samples'} ${write(a)} → ${write(b)} `);
    if (amount) $('sum').append(element('b', tint(amount), withError(amount) + (a ? ` (${b < a ? '−' : '+'}${Math.abs(100 * (b - a) / a).toFixed(1)} %)` : '')));
  }

  found(hit, functions) {
    const [a, b] = this.callees.sides.map(s => share(s.sum(hit).samples, s.all));
    return `A ${a}, B ${b} of samples · ${functions}`;
  }

  // facts are rows of what a frame is: the words, and the change.
  facts(node) {
    const {graph: {tree}, callees} = this, fn = tree.fn[node];
    const facts = [[fn < 0 ? 'all' : 'here', tree.change(node)]];
    if (fn < 0) return facts;
    if (tree === callees) facts.push(['here, self', callees.own(node)]);
    const f = callees.list(f => this.kinds[f.colour] !== 'process').find(c => c.fn === fn);
    if (f) facts.push(['everywhere', f.total], ['everywhere, self', f.self]);
    return facts;
  }

  table(node) {
    const table = element('table'), head = table.createTHead().insertRow(), body = table.createTBody();
    for (const text of ['', 'A', 'B', 'points', $('amount').textContent]) head.append(element('th', '', text));
    for (const [what, change] of this.facts(node)) {
      const row = body.insertRow(), c = change.exactly();
      row.append(element('th', '', what), ...this.callees.sides.map((s, i) => element('td', '', share(c.samples[i], s.all))));
      row.append(element('td', tint(c.share), withError(c.share, 100)), element('td', tint(c.amount), withError(c.amount)));
    }
    return table;
  }

  figures(node) {
    const c = this.graph.tree.change(node).exactly(), [a, b] = this.callees.sides.map((s, i) => share(c.samples[i], s.all));
    return `A ${a}   B ${b}   ${withError(c.share, 100)} points   ${withError(c.amount)} ${$('amount').textContent}`;
  }

  legend() {}

  key(e) {
    const next = name => {
      const inputs = [...document.querySelectorAll(`[name=${name}]`)], at = inputs.findIndex(i => i.checked);
      inputs[(at + 1) % inputs.length].click();
    };
    if (e.key === 'w') next('wide');
    else if (e.key === 'c') next('by');
    else super.key(e);
  }
}
