// Iterators, closures and collections for rustc to inline.
use std::collections::HashMap;

#[inline(never)]
fn count<'a>(text: &'a str) -> HashMap<&'a str, usize> {
    let mut words = HashMap::new();
    for word in text.split_whitespace().filter(|w| w.len() > 1) {
        *words.entry(word).or_insert(0) += 1;
    }
    words
}

#[inline(never)]
fn longest<'a>(words: &HashMap<&'a str, usize>) -> Vec<(&'a str, usize)> {
    let mut all: Vec<_> = words.iter().map(|(w, n)| (*w, *n)).collect();
    all.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    all
}

fn main() {
    let text = std::env::args().collect::<Vec<_>>().join(" ");
    for (word, n) in longest(&count(&text)) {
        println!("{word} {n}");
    }
}
