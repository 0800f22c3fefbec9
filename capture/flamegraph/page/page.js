'use strict';

async function main() {
  const profile = await unpack($('data').textContent);
  $('data').remove();
  const {functions, events, threads} = profile;
  const callees = new Callees(profile);
  const graph = new FlameGraph($('graph'), functions);
  let all = 0; // samples
  const programs = groupThreads(threads);
  const chosen = () => ({event: Number($('event').value || 0), wanted: picker.wanted});
  const strip = new Strip(profile, programs, chosen, count, name => picker.chooseProgram(name));
  const picker = new ThreadPicker(threads, programs, ofThreads, () => {
    count();
    graph.canvas.focus({preventScroll: true});
  });

  // ofThreads is the samples of each thread, in the time that is shown.
  function ofThreads() {
    const sums = new Float64Array(threads.length), {event} = chosen(), {weights, times} = profile, {range} = strip;
    const add = (w, n) => { if (weights.event[w] === event) sums[weights.thread[w]] += n; };
    if (!range) weights.count.forEach((n, w) => add(w, n));
    else times.step.forEach((step, i) => { if (step >= range[0] && step < range[1]) add(times.weight[i], times.count[i]); });
    return sums;
  }

  // What is counted.
  function count() {
    const {event, wanted} = chosen();
    callees.weigh((e, t) => e === event && (!wanted || wanted[t] === 1), strip.range);
    all = callees.total[0];
    strip.show();
    show();
    search();
    legend();
  }

  function show() {
    graph.show($('reversed').checked ? new Callers(callees) : callees);
  }

  // The choices, which are not offered where there is but one.
  events.forEach((e, i) => $('event').append(Object.assign(element('option', '', e), {value: i})));
  $('event-label').hidden = events.length < 2;
  $('event').addEventListener('change', count);
  $('reversed').addEventListener('change', show);

  // Search.
  let hit = null;

  function search() {
    let test = null, wrong = '';
    try {
      test = matcher($('search').value, $('regex').checked);
    } catch (e) {
      wrong = 'not a regular expression';
    }
    $('search').setAttribute('aria-invalid', wrong !== '');
    hit = null;
    let functionsHit = 0, sum = {samples: 0, frames: 0};
    if (test) {
      hit = Uint8Array.from(functions, f => test(f.name) ? 1 : 0);
      for (const h of hit) functionsHit += h;
      sum = callees.sum(fn => hit[fn]);
    }
    graph.mark(hit && (fn => hit[fn] === 1));
    $('found').textContent = wrong || (!test ? '' : functionsHit === 0 ? 'no match' :
      `${share(sum.samples, all)} of samples · ${number(functionsHit)} ${functionsHit === 1 ? 'function' : 'functions'} · ${number(sum.frames)} ${sum.frames === 1 ? 'place' : 'places'}`);
    $('found').classList.toggle('none', wrong !== '' || functionsHit === 0);
  }

  // step selects the next of the matches that are drawn.
  function step(by) {
    if (hit) graph.step(hit, by);
  }

  $('search').addEventListener('input', search);
  $('regex').addEventListener('change', () => { search(); $('search').focus(); });
  $('search').addEventListener('keydown', e => {
    if (e.key === 'Enter') step(e.shiftKey ? -1 : 1);
    if (e.key === 'ArrowDown') graph.canvas.focus();
  });

  // What a frame is.
  function facts(node) {
    const {tree} = graph, f = functions[tree.fn[node]], samples = tree.total[node];
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

  const name = node => functions[graph.tree.fn[node]]?.name ?? 'all';

  function place(node) {
    const f = functions[graph.tree.fn[node]], line = graph.tree.line[node];
    if (!f) return 'all samples';
    const words = [kinds[f.colour], f.image];
    if (f.file) words.push(f.file + (line ? ':' + line : ''));
    return words.filter(w => w).join(' · ');
  }

  const kinds = [...$('legend').children].reduce((w, e) => (w[e.dataset.colour] = e.dataset.word, w), []);

  function describe(node) {
    const line = $('detail');
    line.replaceChildren();
    if (node < 0) {
      line.append(element('span', 'hint', 'Click a frame to zoom, / to search, ? for all keys'));
      return;
    }
    const figures = facts(node).filter(f => f[0] === 'total' || f[0] === 'self').map(f => `${f[0]} ${f[2]} (${f[1]})`).join('   ');
    line.append(element('span', 'name', name(node)), element('span', 'place', place(node)), element('span', 'figures', figures));
  }

  function tip(node, x, y) {
    if (node < 0) {
      $('tip').hidden = true;
      return;
    }
    const table = element('table');
    for (const [what, n, percent] of facts(node)) {
      const row = table.appendChild(element('tr'));
      row.append(element('th', '', what), element('td', '', percent), element('td', '', n));
    }
    showTip(x, y, element('div', 'name', name(node)), element('div', 'place', place(node)), table);
  }

  $('graph').addEventListener('point', e => {
    tip(e.detail.node, e.detail.x, e.detail.y);
    describe(e.detail.node < 0 ? graph.selected : e.detail.node);
  });
  $('graph').addEventListener('select', e => describe(e.detail.node));
  addEventListener('scroll', () => tip(-1), {passive: true});

  // Where the reader is.
  $('graph').addEventListener('zoom', () => {
    showCrumbs($('crumbs'), graph, name);
    $('reset').disabled = graph.root === 0;
    tip(-1);
    describe(graph.selected);
  });
  $('reset').addEventListener('click', () => graph.zoom(0));

  // The legend says how many samples end in code of each kind.
  function legend() {
    const sums = [];
    for (let i = 1; i < callees.self.length; i++) {
      const c = functions[callees.fn[i]].colour;
      sums[c] = (sums[c] || 0) + callees.self[i];
    }
    const present = new Set(functions.map(f => f.colour));
    for (const e of $('legend').children) {
      e.hidden = !present.has(Number(e.dataset.colour));
      const sum = sums[e.dataset.colour];
      e.lastElementChild.textContent = sum ? share(sum, all) : ''; // none ends in a process
    }
  }

  // Keys, wherever the focus is.
  addEventListener('keydown', e => {
    if (picker.open) return;
    const searching = document.activeElement === $('search');
    if (e.key.toLowerCase() === 'f' && (e.ctrlKey || e.metaKey) && !searching || e.key === '/' && !searching && !e.ctrlKey) {
      e.preventDefault(); // pressed once more, Ctrl-F is the browser's own search
      $('search').focus();
      $('search').select();
    } else if (e.key === 'Escape' && !$('help').open) {
      if (searching && !$('search').value) graph.canvas.focus();
      else if ($('search').value) {
        $('search').value = '';
        search();
      } else if (graph.root > 0) graph.zoom(0);
      else if (strip.range) strip.choose(null);
      else graph.select(-1);
    } else if (!searching && !e.ctrlKey && !e.metaKey && !e.altKey && document.activeElement.tagName !== 'SELECT') {
      if (e.key === '?') $('help').showModal();
      else if (e.key === 'n') step(1);
      else if (e.key === 'N') step(-1);
      else if (e.key === 'r') $('reversed').click();
      else if (e.key.startsWith('Arrow') && document.activeElement === document.body) {
        graph.canvas.focus();
        graph.key(e);
      }
    }
  });
  $('keys').addEventListener('click', () => $('help').showModal());

  const bar = $('bar');
  new ResizeObserver(() => document.documentElement.style.setProperty('--bar', bar.offsetHeight + 'px')).observe(bar);
  document.documentElement.style.setProperty('--bar', bar.offsetHeight + 'px');
  count();
  describe(-1);
  document.documentElement.dataset.ready = Math.round(performance.now()); // for who waits for it
}

main().catch(e => {
  $('detail').textContent = `This page cannot be shown: ${e.message}`;
  throw e;
});
