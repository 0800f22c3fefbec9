'use strict';

// groupThreads makes the programs of a profile's threads: {name, threads, processes}, whose processes are {name, pid, threads}. Threads are
// indices. A program is what the main threads of its processes are called: a shell that became a compiler is a process in two programs.
function groupThreads(threads) {
  const programs = new Map();
  threads.forEach((t, i) => {
    const name = t.program;
    if (!programs.has(name)) programs.set(name, {name, threads: [], processes: new Map()});
    const program = programs.get(name);
    program.threads.push(i);
    if (!program.processes.has(t.pid)) program.processes.set(t.pid, {name, pid: t.pid, threads: []});
    program.processes.get(t.pid).threads.push(i);
  });
  return [...programs.values()].map(p => ({...p, processes: [...p.processes.values()]}));
}

// ThreadPicker is the button and the list with which a program, a process or a thread is chosen. weigh() returns the samples of each thread
// that the list shows; chosen() is called after a choice.
class ThreadPicker {
  constructor(threads, programs, weigh, chosen) {
    Object.assign(this, {threads, programs, weigh, chosen});
    this.wanted = null; // by thread: whether it is chosen; null for all
    this.open = false;
    this.picked = null; // the row that was chosen
    this.unfolded = new Set();
    this.button = $('thread');
    this.panel = $('threads');
    this.field = $('thread-search');
    this.list = $('thread-list');
    this.button.hidden = threads.length < 2;
    this.all = {label: 'All threads', name: 'All threads', detail: number(threads.length), threads: threads.map((_, i) => i), children: []};
    this.picked = this.all;
    this.button.textContent = `All threads (${number(threads.length)})`;
    this.tree = this.rows();
    this.panel.addEventListener('beforetoggle', e => {
      this.open = e.newState === 'open';
      if (!this.open) return;
      this.prepare();
      this.place();
    });
    this.field.addEventListener('input', () => this.fill());
    this.field.addEventListener('keydown', e => this.key(e));
    this.list.addEventListener('click', e => {
      const at = [...this.list.children].indexOf(e.target.closest('li'));
      if (at < 0) return;
      if (e.target.closest('.fold')) this.fold(this.shown[at], !this.unfolded.has(this.shown[at]));
      else this.choose(this.shown[at]);
    });
  }

  // rows is the tree of what can be chosen: programs, their processes, their threads, as far as these are several.
  rows() {
    const thread = i => {
      const t = this.threads[i];
      return {label: `${t.comm} (${t.pid}/${t.tid})`, name: t.comm, detail: `${t.pid}/${t.tid}`, threads: [i], children: []};
    };
    const several = list => list.length > 1 ? list : [];
    const process = p => ({label: `${p.name} (${p.pid})`, name: p.name, detail: String(p.pid), threads: p.threads, children: several(p.threads).map(thread)});
    return this.programs.map(p => {
      if (p.processes.length === 1) return process(p.processes[0]);
      return {label: `all ${p.name}`, name: p.name, detail: `${number(p.processes.length)} processes`, threads: p.threads, children: p.processes.map(process)};
    });
  }

  // prepare sorts the rows by what they weigh now.
  prepare() {
    const samples = this.weigh();
    const sort = rows => {
      for (const r of rows) {
        r.samples = r.threads.reduce((sum, i) => sum + samples[i], 0);
        sort(r.children);
      }
      rows.sort((a, b) => b.samples - a.samples || a.name.localeCompare(b.name));
    };
    sort(this.tree);
    this.all.samples = samples.reduce((a, b) => a + b, 0);
    this.field.value = '';
    if (this.tree.length === 1) this.unfolded.add(this.tree[0]);
    this.fill();
  }

  // fill lists the rows that are found. Below a row that is found by itself, others are folded.
  fill() {
    const test = matcher(this.field.value.trim(), false), shown = this.shown = [], most = 400;
    let rest = 0;
    const add = (row, depth) => {
      row.depth = depth;
      if (shown.length < most) shown.push(row);
      else rest++;
    };
    const found = row => test(`${row.name} ${row.detail}`), within = row => found(row) || row.children.some(within);
    const walk = (rows, depth, every) => {
      for (const r of rows) {
        if (!every && !within(r)) continue;
        add(r, depth);
        if (!every && !found(r)) walk(r.children, depth + 1, false);
        else if (this.unfolded.has(r)) walk(r.children, depth + 1, true);
      }
    };
    if (!test) add(this.all, 0);
    walk(this.tree, 0, !test);
    this.list.replaceChildren(...shown.map((r, i) => this.item(r, i)));
    $('thread-rest').textContent = !shown.length ? 'none is called so' : rest ? `and ${number(rest)} more: search for a name or a number` : '';
    this.activate(test ? shown.findIndex(found) : 0);
  }

  item(row, i) {
    const item = element('li');
    item.id = `thread-${i}`;
    item.setAttribute('role', 'option');
    item.dataset.depth = row.depth;
    item.setAttribute('aria-selected', row === this.picked);
    const fold = element('span', row.children.length ? 'fold' : '', row.children.length ? (this.unfolded.has(row) ? '▾' : '▸') : '');
    item.append(fold, element('span', 'name', row.name), element('span', 'detail', row.detail), element('span', 'figures', share(row.samples, this.all.samples)));
    return item;
  }

  activate(at) {
    this.at = Math.max(0, Math.min(at, this.shown.length - 1));
    for (const e of this.list.querySelectorAll('.active')) e.classList.remove('active');
    const item = this.list.children[this.at];
    item?.classList.add('active');
    item?.scrollIntoView({block: 'nearest'});
    if (item) this.field.setAttribute('aria-activedescendant', item.id);
    else this.field.removeAttribute('aria-activedescendant');
  }

  fold(row, unfold) {
    if (unfold) this.unfolded.add(row);
    else this.unfolded.delete(row);
    this.fill();
    this.activate(this.shown.indexOf(row));
    this.field.focus();
  }

  key(e) {
    const row = this.shown[this.at], empty = this.field.value === '';
    if (e.key === 'ArrowDown' || e.key === 'ArrowUp') this.activate(this.at + (e.key === 'ArrowDown' ? 1 : -1));
    else if (e.key === 'Enter' && row) this.choose(row);
    else if (e.key === 'ArrowRight' && row?.children.length && this.field.selectionStart === this.field.value.length) this.fold(row, true);
    else if (e.key === 'ArrowLeft' && row && empty) this.fold(row, false);
    else return;
    e.preventDefault();
  }

  // choose narrows the page to a row's threads.
  choose(row) {
    this.wanted = row === this.all ? null : Uint8Array.from(this.threads, () => 0);
    if (this.wanted) for (const i of row.threads) this.wanted[i] = 1;
    this.button.textContent = row === this.all ? `All threads (${row.detail})` : row.label;
    this.picked = row;
    if (this.open) this.panel.hidePopover();
    this.chosen();
  }

  // chooseProgram chooses all processes of a program.
  chooseProgram(name) {
    const row = this.tree.find(r => r.name === name);
    if (row) this.choose(row);
  }

  // place puts the panel below its button.
  place() {
    const box = this.button.getBoundingClientRect(), {style} = this.panel, width = Math.min(440, innerWidth - 16);
    style.width = width + 'px';
    style.left = Math.max(8, Math.min(box.left, innerWidth - width - 8)) + 'px';
    style.top = box.bottom + 4 + 'px';
  }
}
