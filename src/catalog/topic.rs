//! Topic patterns as a trie of words: `*` matches exactly one word, `#` zero or more (RTE-04).

use crate::{named::ByName, objects::Destination, targets::Targets};
use quorate_types::ShortString;

/// Largest number of `#` in a new binding key (BND-09).
pub(crate) const HASHES_MAX: usize = 2;

/// The patterns of one topic exchange.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Topic {
    root: Node,
}

/// A node of the trie; the path from the root spells the words of a pattern.
#[derive(Clone, Debug, Default, PartialEq)]
struct Node {
    /// Children for literal words.
    words: ByName<Node>,
    /// Child for `*`.
    star: Option<Box<Node>>,
    /// Child for `#`.
    hash: Option<Box<Node>>,
    /// Destinations of the patterns that end here.
    targets: Targets,
}

impl Topic {
    /// Adds a binding with this pattern to the destination.
    pub(crate) fn add(&mut self, pattern: &ShortString, destination: &Destination) {
        let mut node = &mut self.root;
        for word in words_of_pattern(pattern.as_bytes()) {
            node = node.child(word);
        }
        node.targets.add(destination);
    }

    /// Removes such a binding, and the nodes that no pattern needs any more.
    pub(crate) fn remove(&mut self, pattern: &ShortString, destination: &Destination) {
        self.root.remove(&mut words_of_pattern(pattern.as_bytes()), destination);
    }

    /// Calls `found` once with the targets of every pattern that matches.
    pub(crate) fn matches<'a>(&'a self, key: &[u8], found: &mut impl FnMut(&'a Targets)) {
        let rest = if key.is_empty() { None } else { Some(key) };
        Search { found, entered: Vec::new() }.descend(&self.root, rest, false);
    }
}

/// Number of `#` words in the pattern.
pub(crate) fn hashes(pattern: &ShortString) -> usize {
    words(pattern.as_bytes()).filter(|word| *word == b"#").count()
}

/// The words between the dots; an empty text has no words.
fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'.').filter(move |_| !text.is_empty())
}

/// The words of a pattern. `#.#` becomes `#`, which means the same, so that the search need not try
/// all ways to divide the words between the two.
fn words_of_pattern(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut after_hash = false;
    words(text).filter(move |word| {
        let hash = *word == b"#";
        let repeated = hash && after_hash;
        after_hash = hash;
        !repeated
    })
}

impl Node {
    fn child(&mut self, word: &[u8]) -> &mut Node {
        match word {
            b"*" => self.star.get_or_insert_default(),
            b"#" => self.hash.get_or_insert_default(),
            // The words come from a short string, so they are short; words cut at dots out of UTF-8
            // text are UTF-8.
            word => self.words.entry(short(word)).or_default(),
        }
    }

    /// Removes the words of a pattern below the node; true if the node is empty afterwards.
    fn remove<'a>(
        &mut self,
        words: &mut impl Iterator<Item = &'a [u8]>,
        destination: &Destination,
    ) -> bool {
        match words.next() {
            None => self.targets.remove(destination),
            Some(b"*") => remove_boxed(&mut self.star, words, destination),
            Some(b"#") => remove_boxed(&mut self.hash, words, destination),
            Some(word) => {
                if let Some(child) = self.words.get_mut(word)
                    && child.remove(words, destination)
                {
                    self.words.remove(word);
                }
            }
        }
        self.is_empty()
    }

    fn is_empty(&self) -> bool {
        self.words.is_empty()
            && self.star.is_none()
            && self.hash.is_none()
            && self.targets.is_empty()
    }
}

fn remove_boxed<'a>(
    child: &mut Option<Box<Node>>,
    words: &mut impl Iterator<Item = &'a [u8]>,
    destination: &Destination,
) {
    if let Some(node) = child
        && node.remove(words, destination)
    {
        *child = None;
    }
}

fn short(word: &[u8]) -> ShortString {
    ShortString::from_bytes(bytes::Bytes::copy_from_slice(word)).unwrap_or_default()
}

/// One traversal of the trie.
///
/// It ends at each node at most once: behind the last `#` of a pattern a fixed number of words
/// follows, so only one division of the key matches it, and the node of each `#` is entered only
/// once. The first time that a traversal reaches the node of a second `#`, most words are left (the
/// `#` before it takes words in ascending number); that visit covers everything that later visits
/// could find.
struct Search<'f, F> {
    found: &'f mut F,
    /// Nodes of a `#` below another `#` that the traversal has entered.
    entered: Vec<*const Node>,
}

impl<'a, F: FnMut(&'a Targets)> Search<'_, F> {
    fn descend(&mut self, node: &'a Node, rest: Option<&[u8]>, below_hash: bool) {
        if let Some(hash) = &node.hash {
            self.skip_words(hash, rest, below_hash);
        }
        match rest {
            Some(text) => self.next_word(node, text, below_hash),
            None => self.end(node),
        }
    }

    fn next_word(&mut self, node: &'a Node, text: &[u8], below_hash: bool) {
        let (word, rest) = first_word(text);
        if let Some(star) = &node.star {
            self.descend(star, rest, below_hash);
        }
        if let Some(child) = node.words.get(word) {
            self.descend(child, rest, below_hash);
        }
    }

    /// In the node of a `#`: patterns that end here match whatever is left, and longer patterns may
    /// continue at every word. (`words_of_pattern` has removed a second `#` directly behind.)
    fn skip_words(&mut self, hash: &'a Node, mut rest: Option<&[u8]>, below_hash: bool) {
        if below_hash {
            let address = std::ptr::from_ref(hash);
            if self.entered.contains(&address) {
                return;
            }
            self.entered.push(address);
        }
        self.end(hash);
        if hash.words.is_empty() && hash.star.is_none() {
            return;
        }
        while let Some(text) = rest {
            self.next_word(hash, text, true);
            rest = first_word(text).1;
        }
    }

    fn end(&mut self, node: &'a Node) {
        if !node.targets.is_empty() {
            (self.found)(&node.targets);
        }
    }
}

/// The first word, and the text behind its dot.
fn first_word(text: &[u8]) -> (&[u8], Option<&[u8]>) {
    match text.iter().position(|byte| *byte == b'.') {
        Some(dot) => {
            let (word, after) = text.split_at(dot);
            (word, after.get(1..))
        }
        None => (text, None),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// Each pattern is found once, not once for every division of the words of a long key (the
    /// first pattern has 8,128), and the trie is empty again in the end.
    #[test]
    fn a_pattern_is_found_once_however_many_ways_it_fits() {
        let key = ["a"; 128].join(".");
        let mut topic = Topic::default();
        let patterns = ["#.a.#", "#.#", "#.*.#", "#.a.a.#", "*.#.a.#.*", "#.a", "a.#.a.#", "a.*.#"];
        let patterns = patterns.map(|pattern| ShortString::try_from(pattern).unwrap());
        let destination = Destination::Exchange(ShortString::EMPTY);
        patterns.iter().for_each(|pattern| topic.add(pattern, &destination));
        let mut found = 0;
        topic.matches(key.as_bytes(), &mut |_| found += 1);
        assert_eq!(found, patterns.len());
        patterns.iter().for_each(|pattern| topic.remove(pattern, &destination));
        assert_eq!(topic, Topic::default());
    }
}
