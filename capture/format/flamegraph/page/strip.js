'use strict';

const COLOURED = 7; // programs with a colour of their own

// Strip is the samples of each program over time, and the part of the time that is chosen there with the mouse or the arrow keys. It is
// inside of host. counts() returns {of, wanted}: the events and threads whose samples it shows (of is a function), and perhaps ranked, the events by
// which programs get their colours; chosen() is called after a choice, picked(name) for a program in its legend. seconds is how long the event's recording is.
class Strip {
  constructor(host, profile, programs, counts, chosen, picked, seconds = profile.times?.seconds) {
    Object.assign(this, {host, times: profile.times && seconds > 0 ? {...profile.times, seconds} : null, weights: profile.weights, each: profile.each, cpus: profile.cpus, programs, counts, chosen, picked});
    this.range = null; // steps: from the first one on, before the second one; null for all
    this.drawn = null; // the range that is being drawn
    this.shown = []; // by colour: the program that has it, -1 for none
    host.hidden = !this.times;
    if (!this.times) return;
    const line = element('div', 'line');
    this.canvas = element('canvas');
    this.context = this.canvas.getContext('2d');
    this.legend = element('div', 'programs');
    this.when = element('output', 'when');
    this.when.setAttribute('aria-live', 'polite');
    this.whole = element('button', 'whole', 'All');
    this.whole.hidden = true;
    line.append(this.legend, this.when, this.whole);
    host.append(this.canvas, line);
    if (!this.times.steps) { // too many samples, of too many stacks
      this.canvas.hidden = true;
      this.when.textContent = 'Time is left out: there are too many samples that differ';
      return;
    }
    this.program = new Int32Array(profile.threads.length);
    programs.forEach((p, i) => { for (const t of p.threads) this.program[t] = i; });
    this.listen();
  }

  listen() {
    const {canvas} = this;
    canvas.tabIndex = 0;
    canvas.setAttribute('role', 'application');
    canvas.setAttribute('aria-label', 'Samples over time: arrow keys move the part that is shown, with Shift its end');
    new ResizeObserver(() => { if (canvas.clientWidth !== this.width) this.show(); }).observe(canvas);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.paint());
    canvas.addEventListener('pointerdown', e => {
      if (e.button !== 0) return;
      canvas.setPointerCapture(e.pointerId);
      this.anchor = {x: e.clientX, step: this.stepAt(e)};
    });
    canvas.addEventListener('pointermove', e => {
      if (this.anchor) this.draw(e);
      else this.point(e);
    });
    canvas.addEventListener('pointerup', e => {
      if (!this.anchor) return;
      const far = Math.abs(e.clientX - this.anchor.x) >= 3;
      if (far) this.draw(e);
      const range = far ? this.drawn : null; // a click is for all again
      this.anchor = this.drawn = null;
      this.choose(range);
    });
    canvas.addEventListener('pointercancel', () => { this.anchor = this.drawn = null; this.paint(); });
    canvas.addEventListener('pointerleave', () => { $('tip').hidden = true; });
    canvas.addEventListener('keydown', e => this.key(e));
    this.whole.addEventListener('click', () => this.choose(null));
  }

  stepAt(e) {
    const box = this.canvas.getBoundingClientRect(), {steps} = this.times;
    return Math.max(0, Math.min(steps - 1, Math.floor((e.clientX - box.left) / box.width * steps)));
  }

  draw(e) {
    const a = this.anchor.step, b = this.stepAt(e);
    this.drawn = [Math.min(a, b), Math.max(a, b) + 1];
    $('tip').hidden = true;
    this.paint();
    this.say();
  }

  // choose narrows the page to a range of steps, or to all of them.
  choose(range) {
    const {steps} = this.times;
    if (range && range[0] === 0 && range[1] === steps) range = null;
    if (String(range) === String(this.range)) {
      this.paint();
      this.say();
      return;
    }
    this.range = range;
    this.chosen();
  }

  // key moves the range, or its end with Shift.
  key(e) {
    const by = e.key === 'ArrowRight' ? 1 : e.key === 'ArrowLeft' ? -1 : 0, {steps} = this.times;
    if (!by || e.ctrlKey || e.altKey || e.metaKey) return;
    e.preventDefault();
    let [from, to] = this.range || [0, Math.ceil(steps / 10)];
    if (this.range) {
      const step = by * Math.ceil(steps / 50), move = Math.max(-from, Math.min(steps - to, step));
      if (e.shiftKey) to = Math.max(from + 1, Math.min(steps, to + step));
      else [from, to] = [from + move, to + move];
    }
    this.choose([from, to]);
  }

  // show counts what is chosen and draws it: in bins that are wide enough to be seen, and have samples enough to be compared.
  show() {
    if (!this.times?.steps) return;
    const {times, weights, program} = this, {of, wanted, ranked = of} = this.counts(), {steps} = times;
    const [from, to] = this.range || [0, steps];
    const whole = new Float64Array(this.programs.length), part = this.range ? new Float64Array(whole.length) : whole;
    let samples = 0;
    weights.thread.forEach((t, i) => {
      if (of(weights.event[i]) && (!wanted || wanted[t])) samples += weights.count[i];
      if (ranked(weights.event[i])) whole[program[t]] += weights.count[i];
    });
    if (this.range) times.step.forEach((step, i) => {
      const w = times.weight[i];
      if (step >= from && step < to && ranked(weights.event[w])) part[program[weights.thread[w]]] += times.count[i];
    });
    this.colour(whole, part);
    const row = new Int32Array(this.programs.length).fill(COLOURED);
    this.shown.forEach((p, i) => { if (p >= 0) row[p] = i; });

    this.width = this.canvas.clientWidth;
    const bins = Math.max(1, Math.min(steps, this.width / 3, Math.max(20, samples / 20)));
    this.wide = Math.ceil(steps / bins); // steps of a bin
    this.bins = Array.from({length: Math.ceil(steps / this.wide)}, () => new Float64Array(COLOURED + 1));
    this.sums = new Float64Array(COLOURED + 1);
    this.inRange = 0;
    this.samples = samples;
    for (let i = 0; i < times.step.length; i++) {
      const w = times.weight[i], t = weights.thread[w], step = times.step[i];
      if (!of(weights.event[w]) || wanted && !wanted[t]) continue;
      this.bins[Math.floor(step / this.wide)][row[program[t]]] += times.count[i];
      if (step < from || step >= to) continue;
      this.sums[row[program[t]]] += times.count[i];
      this.inRange += times.count[i];
    }
    this.most = 0; // samples in a full bin
    for (const b of this.bins) this.most = Math.max(this.most, b.reduce((a, n) => a + n, 0));
    const [each, several] = this.each.filter((_, event) => of(event));
    this.high = several === undefined && each ? Math.min(this.cpus, this.most * each / this.at(this.wide)) : 0; // CPUs that a full bin keeps busy
    this.list(wanted);
    this.say();
    this.paint();
  }

  // colour gives colours to the heaviest programs of the range and, if some are left, to those of the whole time. A program keeps its colour.
  colour(whole, part) {
    const sorted = weight => {
      const sum = weight.reduce((a, n) => a + n, 0), list = this.programs.map((_, i) => i).filter(i => weight[i] > 0);
      list.sort((a, b) => weight[b] - weight[a] || this.programs[a].name.localeCompare(this.programs[b].name));
      return list.filter((p, i) => i === 0 || weight[p] >= sum / 200);
    };
    this.heaviest = [...new Set([...sorted(part), ...sorted(whole)])].slice(0, COLOURED);
    this.shown = this.shown.map(p => this.heaviest.includes(p) ? p : -1);
    for (const p of this.heaviest) {
      if (this.shown.includes(p)) continue;
      const free = this.shown.indexOf(-1);
      this.shown[free < 0 ? this.shown.length : free] = p;
    }
    this.others = part.reduce((n, weight, p) => n + (weight > 0 && !this.heaviest.includes(p)), 0);
  }

  // name is the program of a colour.
  name(colour) { return this.programs[this.shown[colour]]?.name; }

  // list is the legend: a click chooses all of a program.
  list(wanted) {
    const rows = this.heaviest.map(p => {
      const i = this.shown.indexOf(p), {name} = this.programs[p];
      const b = element('button', '', name);
      b.prepend(element('i', `program${i}`));
      b.append(element('b', '', share(this.sums[i], this.inRange)));
      b.title = `Show only ${name}`;
      if (wanted) b.setAttribute('aria-pressed', this.programs.every(p => p.threads.every(t => (wanted[t] === 1) === (p.name === name))));
      b.addEventListener('click', () => this.picked(name));
      return b;
    });
    if (this.others > 0) {
      const rest = element('span', '', `${number(this.others)} ${this.others === 1 ? 'other' : 'others'}`);
      rest.prepend(element('i', `program${COLOURED}`));
      rest.append(element('b', '', share(this.sums[COLOURED], this.inRange)));
      rows.push(rest);
    }
    this.legend.replaceChildren(...rows);
  }

  // at is the time at which a step begins, in seconds.
  at(step) { return step / this.times.steps * this.times.seconds; }

  // say says which part is chosen, or what is drawn and how fine a range can be.
  say() {
    const range = this.drawn || this.range;
    this.whole.hidden = !this.range;
    if (range) {
      const of = this.drawn ? '' : ` · ${share(this.inRange, this.samples)} of ${number(this.samples)} samples`;
      this.when.textContent = `${time(this.at(range[0]))} to ${time(this.at(range[1]))}${of}`;
      return;
    }
    const high = Number(this.high?.toPrecision(2)), coarse = this.times.steps < 1024 ? ', as there are many samples' : '';
    this.when.textContent = `${time(this.times.seconds)} in bars of ${time(this.at(this.wide))}` + (high ? `, full height ${high} ${high === 1 ? 'CPU' : 'CPUs'}` : '') +
      ` · draw a range to see its part, exact to ${time(this.at(1))}${coarse}`;
  }

  // point says what a bin under the mouse has.
  point(e) {
    const bin = Math.floor(this.stepAt(e) / this.wide), counts = this.bins[bin];
    const table = element('table'), total = counts.reduce((a, n) => a + n, 0);
    counts.forEach((n, i) => {
      if (!n) return;
      const row = table.appendChild(element('tr')), name = element('th', '', this.name(i) ?? 'others');
      name.prepend(element('i', `program${i}`));
      row.append(name, element('td', '', share(n, total)), element('td', '', number(n)));
    });
    const from = this.at(bin * this.wide), to = this.at(Math.min(this.times.steps, (bin + 1) * this.wide));
    showTip(e.clientX, e.clientY, element('div', 'place', `${time(from)} to ${time(to)}: ${number(total)} ${total === 1 ? 'sample' : 'samples'}`), table);
  }

  paint() {
    const {canvas, context: c} = this, width = canvas.clientWidth, height = canvas.clientHeight, ratio = devicePixelRatio || 1;
    if (!this.bins || !width) return;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    const css = getComputedStyle(document.documentElement), colour = name => css.getPropertyValue(name).trim();
    const fills = Array.from({length: COLOURED + 1}, (_, i) => colour(`--program${i}`));
    const {steps, seconds} = this.times, axis = 16, floor = height - axis, x = step => Math.min(steps, step) / steps * width;
    this.bins.forEach((counts, bin) => {
      const left = x(bin * this.wide), right = x((bin + 1) * this.wide);
      let y = floor;
      counts.forEach((n, i) => {
        if (!n) return;
        const h = n / this.most * (floor - 2);
        c.fillStyle = fills[i];
        c.fillRect(left, y - h, Math.max(0.5, right - left - (right - left > 2.5 ? 0.5 : 0)), h);
        y -= h;
      });
    });
    c.fillStyle = colour('--line');
    c.fillRect(0, floor, width, 1);
    c.font = `11px ${colour('--ui')}`;
    c.textBaseline = 'bottom';
    c.fillStyle = colour('--soft');
    const every = tick(seconds, width / 90);
    for (let i = 0; i * every <= seconds; i++) {
      const text = time(i * every), at = i * every / seconds * width, w = c.measureText(text).width;
      c.fillRect(Math.min(at, width - 1), floor, 1, 4);
      if (at + 4 + w <= width) c.fillText(text, at + 4, height);
    }
    const range = this.drawn || this.range;
    if (!range) return;
    const [from, to] = range.map(x);
    c.globalAlpha = 0.72;
    c.fillStyle = colour('--ground');
    c.fillRect(0, 0, from, floor);
    c.fillRect(to, 0, width - to, floor);
    c.globalAlpha = 1;
    c.strokeStyle = colour('--accent');
    c.strokeRect(from + 0.5, 0.5, Math.max(1, to - from - 1), floor - 1);
  }
}

// tick is a round number of seconds between marks of an axis, of which there may be so many.
function tick(seconds, marks) {
  const least = seconds / Math.max(1, marks);
  for (const t of [60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400]) if (least > 30 && t >= least) return t;
  const scale = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].find(n => n * scale >= least * 0.999) * scale;
}

// time is a number of seconds in words.
function time(seconds) {
  if (seconds >= 120) {
    const whole = Math.round(seconds), m = Math.floor(whole / 60) % 60, h = Math.floor(whole / 3600), s = whole % 60;
    return [h && `${h} h`, m && `${m} min`, s && `${s} s`].filter(Boolean).join(' ');
  }
  if (seconds === 0 || seconds >= 1) return `${Number(seconds.toFixed(2))} s`;
  return seconds >= 1e-3 ? `${Number((seconds * 1e3).toPrecision(3))} ms` : `${Number((seconds * 1e6).toPrecision(3))} µs`;
}
