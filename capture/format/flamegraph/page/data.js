'use strict';

// unpack decodes what encode in encode.go wrote: base64 of a raw DEFLATE stream.
async function unpack(base64) {
  const text = atob(base64);
  const packed = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) packed[i] = text.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate-raw'));
  return decode(new Uint8Array(await new Response(stream).arrayBuffer()));
}

function decode(bytes) {
  let at = 4 + new DataView(bytes.buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, at)));
  const next = () => { // an unsigned LEB128 number, below 2^53
    let b = bytes[at++];
    if (b < 128) return b;
    let value = b & 127;
    for (let scale = 128; ; scale *= 128) {
      b = bytes[at++];
      value += (b & 127) * scale;
      if (b < 128) return value;
    }
  };

  const functions = [];
  for (let i = 0; i < header.functions; i++) {
    const name = header.names[next()];
    const image = header.images[next()];
    const colour = next();
    const file = next();
    functions.push({name, image, colour: colour & 15, shade: colour >> 4, file: file ? header.files[file - 1] : ''});
  }

  // Nodes are in preorder: those below node i are the ones from i + 1 to end[i].
  const n = header.nodes;
  const parent = new Int32Array(n), depth = new Int32Array(n), fn = new Int32Array(n), line = new Int32Array(n), end = new Int32Array(n);
  parent[0] = fn[0] = -1;
  const path = [0];
  for (let i = 1; i < n; i++) {
    for (let up = next(); up > 0; up--) end[path.pop()] = i;
    fn[i] = next();
    line[i] = next();
    parent[i] = path[path.length - 1];
    depth[i] = path.length;
    path.push(i);
  }
  for (const i of path) end[i] = n;

  const w = header.weights;
  const weights = {node: new Int32Array(w), event: new Int32Array(w), thread: new Int32Array(w), count: new Float64Array(w)};
  for (let i = 0, node = 0; i < w; i++) {
    weights.node[i] = node += next();
    weights.event[i] = next();
    weights.thread[i] = next();
    weights.count[i] = next();
  }
  const times = header.seconds ? {seconds: header.seconds, steps: header.steps || 0} : null;
  if (times?.steps) {
    const n = header.points;
    Object.assign(times, {weight: new Int32Array(n), step: new Uint16Array(n), count: new Float64Array(n)});
    for (let i = 0, weight = 0, rest = weights.count[0], step = 0; i < n; i++) {
      if (rest === 0) {
        rest = weights.count[++weight];
        step = 0;
      }
      const v = next();
      times.weight[i] = weight;
      times.step[i] = step += v >> 1;
      rest -= times.count[i] = v & 1 ? next() : 1;
    }
  }
  return {times, events: header.events || [], each: header.each || [], cpus: header.cpus || Infinity, threads: header.threads || [], functions, nodes: {parent, depth, fn, line, end}, weights};
}

// Callees is the tree of calls, the outermost function first: what its children(i, f) calls f with lies below i.
class Callees {
  constructor(profile) {
    this.profile = profile;
    Object.assign(this, profile.nodes);
    const n = this.fn.length;
    this.self = new Float64Array(n);
    this.total = new Float64Array(n);
    this.start = new Float64Array(n);
    this.places = null;
  }

  // weigh counts the samples that wanted(event, thread) wants, of all times or of the steps from range[0] on and before range[1].
  weigh(wanted, range = null) {
    const {self} = this, {node, event, thread, count} = this.profile.weights;
    self.fill(0);
    for (let i = 0; i < node.length && !range; i++) {
      if (wanted(event[i], thread[i])) self[node[i]] += count[i];
    }
    if (range) {
      const {weight, step, count} = this.profile.times;
      for (let i = 0; i < step.length; i++) {
        const w = weight[i];
        if (step[i] >= range[0] && step[i] < range[1] && wanted(event[w], thread[w])) self[node[w]] += count[i];
      }
    }
    this.pile();
  }

  // pile finds out from self what lies below each node, and where it begins.
  pile() {
    const {parent, self, total, start} = this;
    total.set(self);
    for (let i = total.length - 1; i > 0; i--) total[parent[i]] += total[i];
    const used = new Float64Array(total.length);
    for (let i = 1; i < total.length; i++) {
      start[i] = start[parent[i]] + used[parent[i]];
      used[parent[i]] += total[i];
    }
  }

  // ends says whether stacks end in a node.
  ends(i) { return this.self[i] > 0; }

  children(i, f) {
    for (let c = i + 1; c < this.end[i]; c = this.end[c]) f(c);
  }

  // sum is the samples that have one of some functions on their stack, once each, and the number of outermost such frames.
  sum(hit) {
    let samples = 0, frames = 0;
    for (let i = 1; i < this.fn.length;) {
      if (this.total[i] > 0 && hit(this.fn[i])) {
        samples += this.total[i];
        frames++;
        i = this.end[i];
      } else {
        i = this.total[i] > 0 ? i + 1 : this.end[i];
      }
    }
    return {samples, frames};
  }

  // everywhere is a function's own share of all samples.
  everywhere(fn) {
    let total = 0, self = 0;
    this.eachPlace(fn, (i, outermost) => {
      self += this.self[i];
      if (outermost) total += this.total[i];
    });
    return {total, self};
  }

  // eachPlace calls f with each node of a function, and whether it is not below another one.
  eachPlace(fn, f) {
    this.places ||= this.findPlaces();
    const {first, nodes} = this.places;
    for (let k = first[fn], end = 0; k < first[fn + 1]; k++) {
      const i = nodes[k], outermost = i >= end;
      if (outermost) end = this.end[i];
      f(i, outermost);
    }
  }

  // findPlaces lists each function's nodes, in their order: those of fn are nodes[first[fn]] and on, before first[fn + 1].
  findPlaces() {
    const {fn} = this, first = new Int32Array(this.profile.functions.length + 1), nodes = new Int32Array(fn.length - 1);
    for (let i = 1; i < fn.length; i++) first[fn[i] + 1]++;
    for (let f = 1; f < first.length; f++) first[f] += first[f - 1];
    const next = first.slice();
    for (let i = 1; i < fn.length; i++) nodes[next[fn[i]]++] = i;
    return {first, nodes};
  }
}

// Callers is the same tree from the other end, the innermost function first. A node is made when its parent is asked for its children:
// all of them would be as many as there are frames in all stacks.
class Callers {
  constructor(callees) {
    this.callees = callees;
    this.parent = [-1];
    this.depth = [0];
    this.fn = [-1];
    this.line = [0];
    this.total = [callees.total[0]];
    this.start = [0];
    this.first = [-1]; // of a node's children, which stand one after the other; -1 before they are made
    this.last = [-1];
    this.ends = [null]; // nodes of callees, and the leaves of their stacks
    const leaves = [];
    for (let i = 1; i < callees.self.length; i++) if (callees.ends(i)) leaves.push(i);
    this.group(0, leaves, leaves);
  }

  group(parent, nodes, leaves) {
    const {callees} = this;
    const groups = new Map();
    for (let i = 0; i < nodes.length; i++) {
      const fn = callees.fn[nodes[i]];
      let g = groups.get(fn);
      if (!g) groups.set(fn, g = {fn, total: 0, nodes: [], leaves: []});
      g.total += callees.self[leaves[i]];
      g.nodes.push(nodes[i]);
      g.leaves.push(leaves[i]);
    }
    this.first[parent] = this.fn.length;
    let start = this.start[parent];
    for (const g of [...groups.values()].sort((a, b) => b.total - a.total || a.fn - b.fn)) {
      this.parent.push(parent);
      this.depth.push(this.depth[parent] + 1);
      this.fn.push(g.fn);
      this.line.push(g.nodes.every(n => callees.line[n] === callees.line[g.nodes[0]]) ? callees.line[g.nodes[0]] : 0);
      this.total.push(g.total);
      this.start.push(start);
      this.first.push(-1);
      this.last.push(-1);
      this.ends.push(g);
      start += g.total;
    }
    this.last[parent] = this.fn.length;
  }

  children(i, f) {
    if (this.first[i] < 0) {
      const nodes = [], leaves = [], g = this.ends[i];
      for (let k = 0; k < g.nodes.length; k++) {
        const caller = this.callees.parent[g.nodes[k]];
        if (caller > 0) {
          nodes.push(caller);
          leaves.push(g.leaves[k]);
        }
      }
      this.ends[i] = null;
      this.group(i, nodes, leaves);
    }
    for (let c = this.first[i]; c < this.last[i]; c++) f(c);
  }
}
