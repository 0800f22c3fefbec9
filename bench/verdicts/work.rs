//! Counts and sorts words: the same work each time. The argument is how often.
use std::collections::{BTreeMap, HashMap};

enum Tree {
    Leaf(u64),
    Node(Box<Tree>, Box<Tree>),
}

fn grow(depth: u32, n: u64) -> Tree {
    match depth {
        0 => Tree::Leaf(n),
        _ => Tree::Node(Box::new(grow(depth - 1, 2 * n)), Box::new(grow(depth - 1, 2 * n + 1))),
    }
}

fn sum(t: &Tree) -> u64 {
    match t {
        Tree::Leaf(n) => *n,
        Tree::Node(a, b) => sum(a) ^ sum(b).rotate_left(1),
    }
}

fn count(n: u64) -> BTreeMap<String, u64> {
    let mut words = HashMap::new();
    for i in 0..20_000u64 {
        *words.entry(format!("word{}", (i * 7919 + n) % 5000)).or_insert(0) += i;
    }
    words.into_iter().collect()
}

fn main() {
    let rounds = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(100);
    let mut total = 0u64;
    for n in 0..rounds {
        let mut sorted: Vec<_> = count(n).into_iter().map(|(word, c)| (c, word)).collect();
        sorted.sort();
        total = total.wrapping_add(sorted[n as usize % 100].0 + sum(&grow(14, n)));
    }
    println!("{total}");
}
