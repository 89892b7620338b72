//! The rules that code and tests cite are in the repository, and each has a test or says why not.

use crate::{assert_none, files, read, root, sources};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::read_dir;

/// A prefix and a number: `ACK-03` and `SES 2` are `("ACK", 3)` and `("SES", 2)`.
type Id = (String, u32);

/// The rules of `cluster-tests/rules` and `proto`.
#[derive(Debug, Default)]
struct Rules {
    /// What stands between prefix and number: `-`, or a blank for the protocols.
    separators: BTreeMap<String, char>,
    all: BTreeSet<Id>,
    /// Those that say why no test shows them.
    not_tested: BTreeSet<Id>,
}

impl Rules {
    /// Each rule begins a line with its id in bold, `**ACK-03** `; the line of one without a test begins
    /// with `*Not tested:`.
    fn read() -> Self {
        let mut rules = Self::default();
        for folder in ["cluster-tests/rules", "proto"] {
            for entry in read_dir(root().join(folder)).expect("a folder of rules").flatten() {
                if entry.path().extension().is_some_and(|it| it == "md") {
                    rules.add(&read(&entry.path()));
                }
            }
        }
        assert!(rules.all.len() > 400, "only {} rules found", rules.all.len());
        rules
    }

    fn add(&mut self, text: &str) {
        let mut last = None;
        for line in text.lines() {
            if line.starts_with("*Not tested:") {
                self.not_tested.extend(last.clone());
            }
            let Some((name, _)) = line.strip_prefix("**").and_then(|it| it.split_once("** "))
            else {
                continue;
            };
            let Some(at) = name.find(['-', ' ']) else { continue };
            let (prefix, number) = name.split_at(at);
            let Ok(number) = number[1..].parse() else { continue };
            self.separators.insert(prefix.to_owned(), if name.contains('-') { '-' } else { ' ' });
            let id = (prefix.to_owned(), number);
            assert!(self.all.insert(id.clone()), "{name} is there twice");
            last = Some(id);
        }
    }

    /// Rules that a text cites: `ACK-03`, `SES 2, 5`, `LEN-04 to LEN-06`, `CON-13 to 15`.
    fn cited_in(&self, text: &str) -> BTreeSet<Id> {
        let mut cited = BTreeSet::new();
        let mut list = List::Ended;
        let mut prefix = None;
        for word in text.split([' ', '\n', '/', '(']).filter(|word| !word.is_empty()) {
            let name = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
            let with_hyphen = name.split_once('-');
            let id = match (&list, with_hyphen, name.parse::<u32>()) {
                (_, Some((before, number)), _) if self.has(before, '-') => {
                    number.parse().ok().map(|number| (before.to_owned(), number))
                }
                (_, None, Ok(number)) if prefix.is_some() => {
                    prefix.take().map(|prefix| (prefix, number))
                }
                // A reply code is no rule.
                (List::To(id) | List::And(id), None, Ok(number @ ..100)) => {
                    Some((id.0.clone(), number))
                }
                _ => None,
            };
            prefix = self.has(name, ' ').then(|| name.to_owned());
            list = match (list, id) {
                (List::To(first), Some(last)) if first.0 == last.0 => {
                    cited.extend((first.1..=last.1).map(|number| (first.0.clone(), number)));
                    List::after(word, last)
                }
                (_, Some(id)) => {
                    cited.insert(id.clone());
                    List::after(word, id)
                }
                (List::And(id), None) if name == "to" => List::To(id),
                (list @ (List::And(_) | List::To(_)), None)
                    if name == "and" || prefix.is_some() =>
                {
                    list
                }
                (_, None) => List::Ended,
            };
        }
        cited
    }

    fn has(&self, prefix: &str, separator: char) -> bool {
        self.separators.get(prefix) == Some(&separator)
    }

    /// Rules that the names of functions cite: `ack_03_…`, `del_01_and_02_…`, `ses_2_to_5_…`.
    fn cited_by_names(&self, text: &str) -> BTreeSet<Id> {
        let mut cited = BTreeSet::new();
        for name in text.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next()) {
            let (mut prefix, mut last, mut to) = (None, None, false);
            for part in name.split('_') {
                let upper = part.to_ascii_uppercase();
                if self.separators.contains_key(&upper) {
                    (prefix, last, to) = (Some(upper), None, false);
                } else if let (Some(prefix), Ok(number)) = (&prefix, part.parse::<u32>()) {
                    let first = last.filter(|_| to).unwrap_or(number);
                    cited.extend((first..=number).map(|number| (prefix.clone(), number)));
                    (last, to) = (Some(number), false);
                } else if part == "to" {
                    to = true;
                } else if part != "and" {
                    prefix = None;
                }
            }
        }
        cited
    }
}

/// Whether what follows a cited rule may go on with a number alone.
enum List {
    And(Id),
    To(Id),
    Ended,
}

impl List {
    /// Punctuation other than a comma ends it.
    fn after(word: &str, id: Id) -> Self {
        match word.chars().last() {
            Some(last) if last.is_ascii_alphanumeric() || last == ',' => Self::And(id),
            Some(_) | None => Self::Ended,
        }
    }
}

/// What of a file is tests; nothing if none of it is.
fn tests_of<'a>(path: &str, text: &'a str) -> &'a str {
    let all = ["/tests/", "/testing", "cluster-tests/", "tests.rs"];
    if all.iter().any(|part| path.contains(part)) {
        return text;
    }
    text.find("#[cfg(test)]").and_then(|at| text.get(at..)).unwrap_or_default()
}

#[test]
fn cited_rules_exist() {
    let rules = Rules::read();
    let mut unknown = Vec::new();
    for (path, text) in sources() {
        for (prefix, number) in rules.cited_in(&text).difference(&rules.all) {
            unknown.push(format!("{path}: {prefix} {number}"));
        }
    }
    assert_none("rules that are cited and do not exist", &unknown);
}

#[test]
fn every_rule_has_a_test_or_says_why_not() {
    let rules = Rules::read();
    let mut tested = BTreeSet::new();
    for (path, text) in sources() {
        let tests = tests_of(&path, &text);
        tested.extend(rules.cited_in(tests));
        tested.extend(rules.cited_by_names(tests));
    }
    for (_, transcript) in files("txt") {
        tested.extend(rules.cited_in(&transcript));
    }
    let names = |rules: BTreeSet<&Id>| -> Vec<String> {
        rules.into_iter().map(|(prefix, number)| format!("{prefix} {number}")).collect()
    };
    let known = &tested | &rules.not_tested;
    let silent = rules.all.difference(&known).collect();
    assert_none("rules that no test cites, and that do not say why", &names(silent));
}

#[test]
fn this_test_sees_what_is_cited() {
    let mut rules = Rules::default();
    rules.add("**SES 3** x\n\n**Q-40** y\n*Not tested: it is new.*\n**QUE-07** z\n**LEN-1** z");
    assert_eq!(rules.not_tested, BTreeSet::from([("Q".to_owned(), 40)]));
    let ids = |ids: &[(&str, u32)]| -> BTreeSet<Id> {
        ids.iter().map(|(prefix, number)| ((*prefix).to_owned(), *number)).collect()
    };
    let cited = rules.cited_in("as SES 3, 5 and QUE-07 say; UTF-8, x-QUE-09 (Q-40 to Q-42). 9");
    let expected = [("Q", 40), ("Q", 41), ("Q", 42), ("QUE", 7), ("SES", 3), ("SES", 5)];
    assert_eq!(cited, ids(&expected));
    let cited = rules.cited_in("LEN-04 to 06. 7, SES 3 (QUE-8, 9) aQ-1 SES x");
    let expected = [("LEN", 4), ("LEN", 5), ("LEN", 6), ("QUE", 8), ("QUE", 9), ("SES", 3)];
    assert_eq!(cited, ids(&expected));
    let cited = rules.cited_by_names("fn que_07_and_9_x_3() {}  fn ses_2_to_4<T>() fn q_x_1()");
    assert_eq!(cited, ids(&[("QUE", 7), ("QUE", 9), ("SES", 2), ("SES", 3), ("SES", 4)]));
}
