use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fmt::{Debug, Display};
use std::hash::Hash;

trait Shape: Debug {
    fn area(&self) -> f64;
}

macro_rules! shapes {
    ($($name:ident $key:ident),*) => { $(
        #[derive(Debug, Clone, PartialEq, PartialOrd, Default)]
        struct $name { sides: Vec<f64>, name: String, parts: BTreeMap<String, Vec<u32>> }
        impl Shape for $name {
            fn area(&self) -> f64 { self.sides.iter().map(|s| s * s).sum::<f64>() + self.parts.len() as f64 }
        }
        fn $key(words: &[String]) -> HashMap<String, Box<dyn Shape>> {
            let mut all: HashMap<String, Box<dyn Shape>> = HashMap::new();
            let mut queue: VecDeque<&String> = words.iter().collect();
            let mut seen = HashSet::new();
            while let Some(word) = queue.pop_front() {
                if !seen.insert(word.to_uppercase()) { continue; }
                let mut shape = $name { name: word.clone(), ..Default::default() };
                shape.parts.entry(format!("{word:>9}")).or_default().extend(word.bytes().map(u32::from));
                shape.sides.extend(word.chars().filter(|c| c.is_ascii_digit()).map(|c| c as u32 as f64));
                shape.sides.sort_by(|a, b| b.partial_cmp(a).unwrap());
                all.insert(word.clone(), Box::new(shape));
            }
            all
        }
    )* };
}

shapes!(Circle circles, Square squares, Triangle triangles, Hexagon hexagons, Star stars, Cross crosses);

fn show<K: Display + Ord + Clone + Hash, V: Debug>(all: &HashMap<K, V>) {
    let mut keys: Vec<K> = all.keys().cloned().collect();
    keys.sort_unstable();
    for k in keys {
        println!("{k} {:?}", all[&k]);
    }
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    for all in [circles(&words), squares(&words), triangles(&words), hexagons(&words), stars(&words), crosses(&words)] {
        println!("{}", all.values().map(|s| s.area()).fold(0.0, f64::max));
        show(&all);
    }
}
