'use strict';
(() => {
  const svg = document.documentElement, $ = id => document.getElementById(id);
  const margin = 16, letter = 6.65, all = [];
  const frames = [...$('frames').children].map(g => {
    const [start, total, depth] = g.dataset.at.split(' ').map(Number);
    const [title, rect, label] = g.children;
    const text = label || g.appendChild(document.createElementNS('http://www.w3.org/2000/svg', 'text'));
    text.setAttribute('y', Number(rect.getAttribute('y')) + 12);
    const f = {g, rect, text, start, total, depth, title: title.textContent, name: title.textContent.split('\n')[0]};
    all[depth] = f; // frames are in preorder
    f.parent = depth ? all[depth - 1] : null;
    return f;
  });
  const root = frames[0], pruned = $('frames').dataset.left !== '0', detail = $('detail'), note = detail.textContent;
  let zoomed = root, selected = null, width = 1200;

  const html = (tag, to, set) => to.appendChild(Object.assign(document.createElementNS('http://www.w3.org/1999/xhtml', tag), set));
  const tools = svg.appendChild(document.createElementNS('http://www.w3.org/2000/svg', 'foreignObject'));
  tools.setAttribute('y', 10);
  tools.setAttribute('height', 34);
  const bar = html('div', tools, {id: 'tools'});
  const found = html('output', bar, {id: 'found'});
  const field = html('input', bar, {id: 'search', type: 'search', placeholder: 'Search (regular expression)', size: 26});
  const reset = html('button', bar, {id: 'reset', textContent: 'Reset zoom'});

  function layout() {
    width = Math.max(400, innerWidth);
    svg.setAttribute('width', width);
    svg.setAttribute('viewBox', `0 0 ${width} ${svg.getAttribute('height')}`);
    const tooled = Math.min(620, width - 2 * margin - 200);
    tools.setAttribute('x', width - margin - tooled);
    tools.setAttribute('width', tooled);
    const scale = zoomed.total ? (width - 2 * margin) / zoomed.total : 0, end = zoomed.start + zoomed.total;
    for (const f of frames) {
      const from = Math.max(f.start, zoomed.start), to = Math.min(f.start + f.total, end);
      let w = (to - from) * scale;
      f.shown = w >= 0.3;
      f.g.style.display = f.shown ? '' : 'none';
      if (!f.shown) continue;
      const x = margin + (from - zoomed.start) * scale, room = Math.floor((w - 9) / letter);
      if (w > 3) w--;
      f.rect.setAttribute('x', x);
      f.rect.setAttribute('width', w);
      f.text.setAttribute('x', x + 4);
      f.text.textContent = f.name.length <= room ? f.name : room < 3 ? '' : f.name.slice(0, room - 1) + '…';
      f.g.classList.toggle('above', f.depth < zoomed.depth);
    }
    reset.disabled = zoomed === root;
  }

  function zoom(f) {
    zoomed = f;
    layout();
  }

  function select(f) {
    if (selected) selected.g.classList.remove('selected');
    selected = f;
    if (f) {
      f.g.classList.add('selected');
      f.rect.scrollIntoView({block: 'nearest'});
    }
    describe(f);
  }

  function describe(f) {
    detail.textContent = f ? f.title.split('\n').filter(s => s).join('   ') : note;
  }

  function search() {
    let re = null, wrong = false;
    try {
      re = field.value && new RegExp(field.value, /\p{Lu}/u.test(field.value.replace(/\\./g, '')) ? 'u' : 'iu');
    } catch (e) {
      wrong = true;
    }
    let samples = 0, hits = 0;
    for (const f of frames) {
      const hit = f !== root && re && re.test(f.name);
      f.g.classList.toggle('hit', !!hit);
      f.inside = !!f.parent && (f.parent.inside || f.parent.hit);
      f.hit = hit;
      if (hit) {
        hits++;
        if (!f.inside) samples += f.total;
      }
    }
    svg.classList.toggle('searching', !!re);
    field.setAttribute('aria-invalid', wrong);
    found.textContent = wrong ? 'not a regular expression' : !re ? '' : !hits ? 'no match' :
      `${pruned ? 'at least ' : ''}${(100 * samples / root.total).toFixed(1)} % of samples · ${hits.toLocaleString('en-US')} ${hits === 1 ? 'frame' : 'frames'}`;
  }

  function step(by) {
    const hits = frames.filter(f => f.hit && f.shown), at = hits.indexOf(selected);
    if (hits.length) select(hits[at < 0 ? (by > 0 ? 0 : hits.length - 1) : (at + by + hits.length) % hits.length]);
  }

  function move(key) {
    const f = selected || zoomed, row = frames.filter(o => o.shown && o.depth === f.depth), at = row.indexOf(f);
    const to = key === 'ArrowUp' ? f.parent : key === 'ArrowLeft' ? row[at - 1] : key === 'ArrowRight' ? row[at + 1] :
      frames.filter(o => o.shown && o.parent === f).reduce((a, b) => a && a.total >= b.total ? a : b, null);
    if (to) select(to);
  }

  for (const f of frames) {
    f.g.addEventListener('click', () => { select(f); zoom(f); });
    f.g.addEventListener('mouseenter', () => describe(f));
    f.g.addEventListener('mouseleave', () => describe(selected));
  }
  field.addEventListener('input', search);
  reset.addEventListener('click', () => zoom(root));
  addEventListener('resize', layout);
  addEventListener('keydown', e => {
    const typing = document.activeElement === field;
    if (e.key === '/' && !typing || e.key === 'f' && (e.ctrlKey || e.metaKey) && !typing) {
      field.focus();
      field.select();
    } else if (e.key === 'Escape') {
      if (field.value) {
        field.value = '';
        search();
      } else if (typing) field.blur();
      else if (zoomed !== root) zoom(root);
      else select(null);
    } else if (e.key === 'Enter' && typing) {
      step(e.shiftKey ? -1 : 1);
    } else if (typing || e.ctrlKey || e.metaKey || e.altKey) {
      return;
    } else if (e.key.startsWith('Arrow')) {
      move(e.key);
    } else if (e.key === 'Enter' && selected && document.activeElement !== reset) {
      zoom(selected);
    } else if (e.key === 'n' || e.key === 'N') {
      step(e.key === 'n' ? 1 : -1);
    } else if (e.key === '?') {
      detail.textContent = '/ or Ctrl-F: search · Enter: next match, or zoom to the selected frame · arrows: caller, callee, neighbours · n, N: matches · Esc: back';
    } else {
      return;
    }
    e.preventDefault();
  });
  svg.classList.add('live');
  layout();
})();
