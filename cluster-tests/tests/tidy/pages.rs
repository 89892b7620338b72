//! README and the pages below docs: the make targets that they name exist, their links lead somewhere,
//! README is short, and each page says what it is good for and is found from the index. Their commands
//! are run by `cluster-tests/interop/docs`.

use super::{assert_none, read, root};
use std::collections::BTreeSet;
use std::fs::read_dir;
use std::path::Path;

/// The most lines that README may have.
const README_LINES_MOST: usize = 150;
/// How each page below docs begins, after its title.
const OPENING: &str = "After this page you can ";
const INDEX: &str = "docs/README.md";
/// Documents elsewhere whose links are checked too.
const ELSEWHERE: &[&str] = &[
    "ARCHITECTURE.md",
    "cluster-tests/interop/README.md",
    "cluster-tests/rules/README.md",
    "helm/quorate/README.md",
];

/// README and every page below docs, with its path from the root.
fn pages() -> Vec<(String, String)> {
    let root = root();
    let mut found = vec![("README.md".to_owned(), read(&root.join("README.md")))];
    let mut folders = vec![root.join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in read_dir(&folder).expect("a folder of docs").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "md") {
                let from_root = path.strip_prefix(&root).expect("below the root");
                found.push((from_root.display().to_string(), read(&path)));
            }
        }
    }
    assert!(found.len() > 10, "only {} pages found", found.len());
    found.sort();
    found
}

/// Targets of the Makefile.
fn targets(makefile: &str) -> BTreeSet<&str> {
    let rules = makefile.lines().filter(|line| !line.starts_with(['\t', ' ', '#', '.']));
    rules
        .filter_map(|line| line.split_once(':'))
        .filter(|(_, after)| !after.starts_with('='))
        .flat_map(|(names, _)| names.split_whitespace())
        .collect()
}

/// Words that follow `make ` where a text shows commands: in code blocks and code spans.
fn makes(text: &str) -> BTreeSet<&str> {
    let words = text.split(['`', '\n']).filter_map(|piece| {
        let command = piece.trim_start().trim_start_matches("$ ").strip_prefix("make ")?;
        command.split_whitespace().find(|word| !word.contains('='))
    });
    words.collect()
}

/// A text without its fenced blocks.
fn prose(text: &str) -> String {
    let mut fenced = false;
    let outside = text.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    });
    outside.collect::<Vec<_>>().join("\n")
}

/// What the links of a text lead to, pictures included, but for other sites.
fn links(text: &str) -> Vec<String> {
    let prose = prose(text);
    let targets = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains("://")).map(str::to_owned).collect()
}

/// Names by which links reach the headings of a text, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let prose = prose(text);
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    let titles = headings.map(|line| line.trim_start_matches('#').trim().to_lowercase());
    let kept = |letter: &char| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_');
    titles.map(|title| title.chars().filter(kept).collect::<String>().replace(' ', "-")).collect()
}

/// Why a link of a page leads nowhere.
fn broken(page: &str, text: &str, link: &str) -> Option<String> {
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = root().join(page).parent().map(|folder| folder.join(file))?;
    if !file.is_empty() && !target.exists() {
        return Some(format!("{page}: no file {file}"));
    }
    let there = if file.is_empty() { text.to_owned() } else { text_of(&target) };
    let missing = !anchor.is_empty() && !anchors(&there).contains(anchor);
    missing.then(|| format!("{page}: no heading #{anchor} in {file}"))
}

/// The text of a page; none of a picture or a folder.
fn text_of(path: &Path) -> String {
    if path.extension().is_some_and(|it| it == "md") { read(path) } else { String::new() }
}

#[test]
fn the_commands_that_pages_name_are_there() {
    let makefile = read(&root().join("Makefile"));
    let targets = targets(&makefile);
    let mut missing = Vec::new();
    for (page, text) in pages() {
        let unknown = makes(&text).into_iter().filter(|target| !targets.contains(target));
        missing.extend(unknown.map(|target| format!("{page}: make {target}")));
    }
    assert_none("make targets that pages name and the Makefile lacks", &missing);
}

#[test]
fn links_of_pages_lead_somewhere() {
    let mut wrong = Vec::new();
    let elsewhere = ELSEWHERE.iter().map(|page| ((*page).to_owned(), read(&root().join(page))));
    for (page, text) in pages().into_iter().chain(elsewhere) {
        wrong.extend(links(&text).iter().filter_map(|link| broken(&page, &text, link)));
    }
    assert_none("links that lead nowhere", &wrong);
}

#[test]
fn readme_is_short() {
    let lines = read(&root().join("README.md")).lines().count();
    assert!(lines <= README_LINES_MOST, "README.md has {lines} lines, not {README_LINES_MOST}");
}

#[test]
fn every_page_begins_with_what_its_reader_can_do() {
    let mut wrong = Vec::new();
    for (page, text) in pages().iter().filter(|(page, _)| page != "README.md") {
        let mut lines = text.lines();
        let title = lines.next().is_some_and(|line| line.starts_with("# "));
        let opening = lines.find(|line| !line.is_empty());
        if !title || !opening.is_some_and(|line| line.starts_with(OPENING)) {
            wrong.push(page.clone());
        }
    }
    assert_none(&format!("pages without a title and '{OPENING}…'"), &wrong);
}

#[test]
fn the_index_leads_to_every_page() {
    let index = links(&read(&root().join(INDEX)));
    let linked: BTreeSet<String> = index
        .iter()
        .filter_map(|link| link.split('#').next())
        .map(|link| format!("docs/{link}"))
        .collect();
    let below = pages().into_iter().map(|(page, _)| page).filter(|page| page.starts_with("docs/"));
    let lost: Vec<String> = below.filter(|page| page != INDEX && !linked.contains(page)).collect();
    assert_none(&format!("pages that {INDEX} has no link to"), &lost);
}

#[test]
fn the_makefile_has_the_houses_targets() {
    let makefile = read(&root().join("Makefile"));
    let targets = targets(&makefile);
    for target in [
        "run",
        "test",
        "verify",
        "fix",
        "bench",
        "acceptance",
        "fuzz",
        "soak",
        "interop",
        "deps",
        "rocksdb",
    ] {
        assert!(targets.contains(target), "no target {target} in {targets:?}");
    }
}

#[test]
fn this_test_sees_what_it_looks_for() {
    assert_eq!(targets("a: b\nc d:\n\tx:\nV := 1\n.PHONY: z\n"), BTreeSet::from(["a", "c", "d"]));
    assert_eq!(makes("`make run`\n    make V=1 test\nto make do"), BTreeSet::from(["run", "test"]));
    let text =
        "# A `b`, c\n[x](y.md#z) ![p](q.png) <http://h> [h](http://h)\n```sh\n# no\n[n](o)\n```\n";
    assert_eq!(links(text), ["y.md#z", "q.png"]);
    assert_eq!(anchors(text), BTreeSet::from(["a-b-c".to_owned()]));
    assert_eq!(broken("README.md", text, "#a-b-c"), None);
    assert!(broken("README.md", text, "#z").is_some());
    assert!(broken("README.md", text, "no-such-file.md").is_some());
}
