'use strict';

// Which differences between two recordings are more than the error of sampling. Package difference has the same in Go, and says what it assumes.

const CONFIDENCE = 0.95; // of all differences of a list together
const FEWEST = 10; // samples of both, of what is judged: the rest always has zero in its interval
const BLOCKS = 128; // parts of the time, to see what comes in bursts

// tail is the share of a normal distribution above z, which is at least 1 (its continued fraction).
function tail(z) {
  let f = z;
  for (let k = 100; k > 0; k--) f = z + k / f;
  return Math.exp(-z * z / 2) / Math.sqrt(2 * Math.PI) / f;
}

// quantile is how many standard deviations the interval of one of so many differences is to either side.
function quantile(tests) {
  const p = (1 - CONFIDENCE) / 2 / Math.max(1, tests);
  let low = 1, high = 30;
  for (let i = 0; i < 60; i++) {
    const z = (low + high) / 2;
    if (tail(z) > p) low = z;
    else high = z;
  }
  return low;
}

// proportion is a share of n samples, and Wilson's interval.
function proportion(share, n, z) {
  if (!n) return {low: 0, value: 0, high: 1};
  const z2 = z * z / n, middle = (share + z2 / 2) / (1 + z2), half = Math.sqrt(share * (1 - share) * z2 + z2 * z2 / 4) / (1 + z2);
  return {low: Math.max(0, Math.min(middle - half, share)), value: share, high: Math.min(1, Math.max(middle + half, share))};
}

// counted is how many samples are expected where n were taken, times what one stands for.
function counted(n, z, each) {
  const middle = n + z * z / 2, half = z * Math.sqrt(n + z * z / 4);
  return {low: Math.max(0, middle - half) * each, value: n * each, high: (middle + half) * each};
}

// between is the difference of two values (Newcombe's method), of what is judged or not. error is how far its interval goes towards zero.
function between(a, b, judged) {
  const value = b.value - a.value;
  let low = value - Math.hypot(b.value - b.low, a.high - a.value), high = value + Math.hypot(b.high - b.value, a.value - a.low);
  if (!judged) [low, high] = [Math.min(low, 0), Math.max(high, 0)];
  return {low, value, high, error: value < 0 ? high - value : value - low, excludesZero: low > 0 || high < 0};
}

// Side is the tree with what is counted of one of two recordings, whose event and times are its own. It is so many seconds long.
class Side extends Callees {
  constructor(profile, index, seconds) {
    super(profile);
    this.index = index;
    this.timed = seconds > 0;
    this.now = new Float64Array(BLOCKS);
    this.whole = new Float64Array(BLOCKS); // samples by block
  }

  // count counts the samples of an event in the threads that are wanted (null for all), in a range of steps (null for all). each is what one
  // stands for.
  count(event, wanted, range, each) {
    Object.assign(this, {event, wanted, each, range});
    this.weigh((e, t) => e === event && (!wanted || wanted[t] === 1), range);
    this.all = this.total[0];
    const steps = this.timed && this.profile.times?.steps || 0;
    this.from = range ? range[0] : 0;
    this.steps = range ? range[1] - range[0] : steps;
    this.blocks = Math.min(BLOCKS, this.steps); // fewer where there are fewer steps
    this.squares = 0;
    if (this.blocks < 2) return;
    this.whole.fill(0);
    this.add(0, this.profile.weights.node.length, this.whole);
    for (let b = 1; b < this.blocks; b++) this.squares += (this.whole[b] - this.whole[b - 1]) ** 2;
  }

  // add adds the samples of some weights to those of blocks.
  add(first, last, to) {
    const {profile: {weights, times}, index, event, wanted, from, steps, blocks} = this;
    for (let w = first; w < last; w++) {
      if (weights.event[w] !== event || wanted && !wanted[weights.thread[w]]) continue;
      for (let p = index.points[w]; p < index.points[w + 1]; p++) {
        const step = times.step[p] - from;
        if (step >= 0 && step < steps) to[Math.floor(step * blocks / steps)] += times.count[p];
      }
    }
  }

  // bursts is by how much the variances of a share and of a number of samples are larger than those of independent samples. ranges(add) calls
  // add with ranges of weights, which have so many samples.
  bursts(samples, ranges) {
    if (this.blocks < 2 || !samples) return [1, 1];
    const {now, whole, blocks, all} = this, per = blocks / (2 * (blocks - 1)), p = samples / all;
    now.fill(0);
    ranges((first, last) => this.add(first, last, now));
    let squares = 0, cross = 0;
    for (let b = 1; b < blocks; b++) {
      const d = now[b] - now[b - 1];
      squares += d * d;
      cross += d * (whole[b] - whole[b - 1]);
    }
    const number = Math.max(1, per * squares / samples);
    if (p >= 1) return [1, number];
    return [Math.max(1, per * (squares - 2 * p * cross + p * p * this.squares) / (all * p * (1 - p))), number];
  }
}

// Change is a number of samples on both sides, and by how much it differs. What is no change even for samples that are independent is none
// for those that come in bursts, so what these do is looked at only where it matters.
class Change {
  constructor(sides, samples, ranges, z) {
    Object.assign(this, {sides, samples, ranges, z, exact: false});
    this.estimate(() => [1, 1]);
  }

  // by is the difference of 'share' or 'amount', as far as that says whether its interval excludes zero.
  by(what) { return this[what].excludesZero ? this.exactly()[what] : this[what]; }

  // exactly finds the intervals, where these are shown.
  exactly() {
    if (!this.exact) this.estimate((s, i) => s.bursts(this.samples[i], this.ranges));
    this.exact = true;
    return this;
  }

  estimate(bursts) {
    const shares = [], amounts = [];
    this.sides.forEach((s, i) => {
      const n = this.samples[i], [ofShare, ofNumber] = bursts(s, i);
      shares.push(proportion(s.all ? n / s.all : 0, s.all / ofShare, this.z));
      amounts.push(counted(n / ofNumber, this.z, ofNumber * s.each));
    });
    const judged = this.samples[0] + this.samples[1] >= FEWEST;
    this.share = between(...shares, judged);
    this.amount = between(...amounts, judged);
  }
}

// indexed finds the first weight of each node, and the first point of each weight; one more has the end.
function indexed(profile) {
  const {nodes, weights, times} = profile, n = nodes.fn.length, w = weights.node.length;
  const first = new Int32Array(n + 1).fill(w), points = new Int32Array(w + 1);
  for (let i = w - 1; i >= 0; i--) first[weights.node[i]] = i;
  for (let i = n - 1; i >= 0; i--) first[i] = Math.min(first[i], first[i + 1]);
  if (times?.steps) for (const i of times.weight) points[i + 1]++;
  for (let i = 0; i < w; i++) points[i + 1] += points[i];
  return {first, points};
}

// DifferentCallees is the tree of calls of two recordings. Widths are those of side 0 or 1, or of the one that is larger; change(i) is how much
// what lies below a node differs.
class DifferentCallees extends Callees {
  constructor(profile, seconds) {
    super(profile);
    this.index = indexed(profile);
    this.sides = seconds.map(s => new Side(profile, this.index, s));
  }

  // count counts the samples of a pair of events. wide is 0, 1 or 'both'; amounts says whether widths are amounts, and not shares.
  count(pair, wanted, ranges, wide, amounts) {
    const [a, b] = this.sides;
    this.sides.forEach((s, i) => s.count(pair.events[i], wanted, ranges[i], pair.each[i]));
    this.widths(wide, amounts);
    let tests = 0;
    for (let i = 1; i < this.fn.length; i++) if (a.total[i] + b.total[i] >= FEWEST) tests++;
    this.z = quantile(tests);
    this.changes = new Map();
    this.listed = null;
  }

  widths(wide, amounts) {
    const [a, b] = this.sides, [x, y] = this.sides.map(s => amounts ? s.each : s.all ? 1 / s.all : 0);
    for (let i = 0; i < this.self.length; i++) {
      const n = a.self[i] * x, m = b.self[i] * y;
      this.self[i] = wide === 0 ? n : wide === 1 ? m : Math.max(n, m);
    }
    this.pile();
  }

  ends(i) { return this.sides[0].self[i] + this.sides[1].self[i] > 0; }

  // judge is how much two numbers of samples differ. ranges(add) calls add with the weights that have them.
  judge(samples, ranges, z) { return new Change(this.sides, samples, ranges, z); }

  change(i) {
    if (!this.changes.has(i)) this.changes.set(i, this.judge(this.sides.map(s => s.total[i]), add => add(this.index.first[i], this.index.first[this.end[i]]), this.z));
    return this.changes.get(i);
  }

  // own is how much the samples that end in a node differ.
  own(i) { return this.judge(this.sides.map(s => s.self[i]), add => add(this.index.first[i], this.index.first[i + 1]), this.z); }

  // list has how much each function that counts differs, by itself and with what it calls.
  list(counts) {
    if (this.listed) return this.listed;
    const {first} = this.index, list = [];
    let tests = 0;
    this.profile.functions.forEach((f, fn) => {
      if (!counts(f)) return;
      const sums = this.sides.map(s => s.everywhere(fn)), self = sums.map(s => s.self), total = sums.map(s => s.total);
      if (self[0] + self[1] >= FEWEST) tests++;
      if (total[0] + total[1] < FEWEST) return;
      tests++;
      list.push({fn, self, total});
    });
    const z = quantile(tests);
    return this.listed = list.map(({fn, self, total}) => {
      const places = f => this.sides[0].eachPlace(fn, f);
      return {
        fn,
        self: this.judge(self, add => places(i => add(first[i], first[i + 1])), z),
        total: this.judge(total, add => places((i, outermost) => { if (outermost) add(first[i], first[this.end[i]]); }), z),
      };
    });
  }
}

// DifferentCallers is the same from the other end.
class DifferentCallers extends Callers {
  group(parent, nodes, leaves) {
    this.leaves ||= [leaves];
    this.changes ||= new Map();
    super.group(parent, nodes, leaves);
    for (let c = this.first[parent]; c < this.last[parent]; c++) this.leaves[c] = this.ends[c].leaves;
  }

  change(i) {
    const {callees} = this, {first} = callees.index;
    if (!this.changes.has(i)) {
      const samples = callees.sides.map(s => this.leaves[i].reduce((n, leaf) => n + s.self[leaf], 0));
      this.changes.set(i, callees.judge(samples, add => { for (const leaf of this.leaves[i]) add(first[leaf], first[leaf + 1]); }, callees.z));
    }
    return this.changes.get(i);
  }
}
