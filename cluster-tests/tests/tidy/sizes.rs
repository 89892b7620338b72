//! Types and import cycles of the broker stay small.
//!
//! What is too large today is listed with its size. The test fails when it grows, and also when it
//! has become smaller than listed, so that the lists only ever get shorter. The definitions are
//! those of `cluster-tests/measures.py`.

use crate::{assert_none, sources};
use std::collections::{BTreeMap, BTreeSet};

/// The most fields of a struct that is no plain record.
const FIELDS_MOST: usize = 12;
/// The most methods of a type, in all its inherent impl blocks together.
const METHODS_MOST: usize = 25;
/// The most files of an import cycle.
const CYCLE_MOST: usize = 5;

/// Structs that have more fields.
const FIELDS: &[(&str, usize)] = &[("Counters", 24)];
/// Types that have more methods.
const METHODS: &[(&str, usize)] =
    &[("DeadLetters", 26), ("LedHomes", 27), ("Node", 33), ("Views", 26)];
/// Cycles that have more files, by the first module of each.
const CYCLES: &[(&str, usize)] = &[];

/// Types of figures. A struct of nothing else is a plain record.
const FIGURES: &[&str] = &[
    "bool",
    "f64",
    "i64",
    "u8",
    "u16",
    "u32",
    "u64",
    "usize",
    "String",
    "AtomicBool",
    "AtomicU64",
    "Counter",
    "Deliveries",
    "Mutex<DeadLetterCounters>",
    "Recorder",
];
/// What a plain record of other values has none of, besides methods: locks, shared things, and
/// ends of channels.
const SHARED: &[&str] =
    &["Arc<", "Atomic", "Cell<", "Lock<", "Mutex<", "Notify", "Receiver<", "Sender<", "Weak<"];

/// A module below its crate, such as `["dead_letter", "send"]`.
type Module = Vec<String>;

/// What is measured of types.
#[derive(Debug, Default, PartialEq, Eq)]
struct Types {
    /// Structs, with the types of their fields. Modules may have private ones of the same name.
    structs: Vec<(String, Vec<String>)>,
    /// How many methods a type has: its impl blocks may be in many files.
    methods: BTreeMap<String, usize>,
}

impl Types {
    /// Whether a struct only holds values: settings, views, counters.
    fn is_record(&self, name: &str, fields: &[String]) -> bool {
        let has_shared = |kind: &String| SHARED.iter().any(|shared| kind.contains(shared));
        fields.iter().all(|kind| FIGURES.contains(&kind.as_str()))
            || !self.methods.contains_key(name) && !fields.iter().any(has_shared)
    }
}

/// The broker's files without their tests, by module.
fn broker() -> BTreeMap<Module, String> {
    let mut modules = BTreeMap::new();
    for (path, text) in sources() {
        let below = path.strip_prefix("src/broker/").and_then(|it| it.strip_suffix(".rs"));
        let Some(below) = below.filter(|below| *below != "build") else { continue };
        let mut module: Module = below.split('/').map(str::to_owned).collect();
        let is_test = |part: &String| part.split('_').any(|it| it.starts_with("test"));
        if !module.iter().any(is_test) {
            module.pop_if(|last| last == "lib" || last == "mod");
            modules.insert(module, product(&text).to_owned());
        }
    }
    assert!(modules.len() > 40, "only {} modules found", modules.len());
    modules
}

/// What comes before the tests in a file.
fn product(text: &str) -> &str {
    let tests = text.match_indices("\n#[cfg(test)]\n").find(|(at, mark)| {
        let below = text.get(at + mark.len()..).unwrap_or_default();
        let item = below.lines().find(|line| !line.starts_with("#["));
        item.is_some_and(|item| item.starts_with("mod ") && item.ends_with('{'))
    });
    tests.and_then(|(at, _)| text.get(..=at)).unwrap_or(text)
}

/// A line without `pub` or `pub(…)`.
fn bare(line: &str) -> &str {
    let Some(rest) = line.strip_prefix("pub") else { return line };
    let rest = rest.strip_prefix('(').and_then(|it| it.split_once(')')).map_or(rest, |it| it.1);
    rest.strip_prefix(' ').unwrap_or(line)
}

/// The name that a text begins with, and the rest.
fn name(text: &str) -> (&str, &str) {
    let end = text.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
    text.split_at(end.unwrap_or(text.len()))
}

/// The struct whose fields begin below this line, or below a `where` that follows it.
fn struct_of(line: &str) -> Option<&str> {
    let (name, rest) = name(bare(line).strip_prefix("struct ")?);
    (!rest.contains(['(', ';', '}'])).then_some(name)
}

/// The type whose inherent impl block begins at this line.
fn impl_of(line: &str) -> Option<&str> {
    let mut head = line.strip_prefix("impl")?.strip_suffix(" {")?;
    if head.starts_with('<') {
        head = head.split_once("> ")?.1;
    }
    let (name, rest) = name(head.trim_start());
    let is_inherent = rest.is_empty() || rest.starts_with('<') && !rest.contains(" for ");
    is_inherent.then_some(name)
}

fn is_method(line: &str) -> bool {
    let mut words = bare(line).split(' ');
    words.find(|word| !["async", "const", "unsafe"].contains(word)) == Some("fn")
}

/// Adds the types of a file.
fn add_types(text: &str, types: &mut Types) {
    let (mut of_struct, mut of_impl) = (false, None);
    let mut is_open = false;
    for line in text.lines() {
        if let Some(name) = struct_of(line) {
            of_struct = true;
            types.structs.push((name.to_owned(), Vec::new()));
        } else if let Some(name) = impl_of(line) {
            of_impl = Some(name);
        } else if line.starts_with('}') {
            (of_struct, of_impl) = (false, None);
        }
        let inner = line.strip_prefix("    ").filter(|inner| !inner.starts_with(' '));
        if let Some(inner) = inner.filter(|_| is_open) {
            let (field, kind) = name(bare(inner));
            if let (Some((_, fields)), Some(kind)) =
                (types.structs.last_mut().filter(|_| of_struct), kind.strip_prefix(": "))
                && !field.is_empty()
            {
                fields.push(kind.trim_end_matches(',').to_owned());
            }
            if let Some(of) = of_impl.filter(|_| is_method(inner)) {
                *types.methods.entry(of.to_owned()).or_default() += 1;
            }
        }
        if !line.is_empty() && !line.starts_with(' ') {
            is_open = line.ends_with('{');
        }
    }
}

/// What `use` declarations name of the own crate: trees, without white space.
fn uses(text: &str) -> Vec<String> {
    let of_own = |line: &str| line.starts_with("use crate") || line.starts_with("use super");
    let tree = |statement: &str| -> Option<String> {
        let lines = statement.lines().map(|line| bare(line.trim()));
        let mut words = lines.skip_while(|line| !of_own(line)).flat_map(str::split_whitespace);
        words.next()?;
        Some(words.collect())
    };
    text.split(';').filter_map(tree).collect()
}

/// The paths of a `use` tree.
fn paths(tree: &str) -> Vec<Vec<&str>> {
    let (stem, branches) = tree.split_once('{').unwrap_or((tree, ""));
    let stem: Vec<&str> = stem.split("::").filter(|part| !part.is_empty()).collect();
    let Some(branches) = branches.strip_suffix('}') else { return vec![stem] };
    let mut all = Vec::new();
    let (mut depth, mut from) = (0, 0);
    for (at, letter) in branches.char_indices().chain([(branches.len(), ',')]) {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let branch = branches.get(from..at).filter(|branch| !branch.is_empty());
                let below = branch.map(paths).unwrap_or_default();
                all.extend(below.into_iter().map(|path| [stem.clone(), path].concat()));
                from = at + 1;
            }
            _ => {}
        }
    }
    all
}

/// The module that a path names, or the nearest one above what it names.
fn module_at(path: &[&str], from: &Module, modules: &BTreeMap<Module, String>) -> Module {
    let mut at = if path.first() == Some(&"super") { from.clone() } else { Module::new() };
    for part in path {
        match *part {
            "super" => drop(at.pop()),
            "crate" | "self" => {}
            name => at.push(name.to_owned()),
        }
    }
    while !at.is_empty() && !modules.contains_key(&at) {
        at.pop();
    }
    at
}

/// Which modules each module imports from. The crate's root, which re-exports, does not count.
fn imports(modules: &BTreeMap<Module, String>) -> BTreeMap<&Module, BTreeSet<Module>> {
    let of = |module: &Module, text: &str| {
        let trees = uses(text);
        let all = trees.iter().flat_map(|tree| paths(tree));
        let named = all.map(|path| module_at(&path, module, modules));
        named.filter(|other| !other.is_empty() && other != module).collect()
    };
    modules.iter().map(|(module, text)| (module, of(module, text))).collect()
}

/// Sizes of the largest sets of modules that all reach each other, by the first module of each.
fn cycles(imports: &BTreeMap<&Module, BTreeSet<Module>>) -> BTreeMap<String, usize> {
    let reached_from = |from: &Module| {
        let (mut reached, mut ahead) = (BTreeSet::new(), vec![from.clone()]);
        while let Some(module) = ahead.pop() {
            for next in imports.get(&module).into_iter().flatten() {
                if reached.insert(next.clone()) {
                    ahead.push(next.clone());
                }
            }
        }
        reached
    };
    let reached: BTreeMap<&Module, BTreeSet<Module>> =
        imports.keys().map(|module| (*module, reached_from(module))).collect();
    let mut cycles = BTreeMap::new();
    for (module, ahead) in &reached {
        let back = |other: &&Module| reached.get(other).is_some_and(|it| it.contains(*module));
        let mut cycle = ahead.iter().filter(back).peekable();
        if cycle.peek() == Some(module) {
            cycles.insert(module.join("::"), cycle.count());
        }
    }
    cycles
}

/// What is larger than it may be, and listings that are out of date.
fn wrong(
    what: &str,
    most: usize,
    listed: &[(&str, usize)],
    sizes: impl IntoIterator<Item = (String, usize)>,
) -> Vec<String> {
    let mut listed: BTreeMap<&str, usize> = listed.iter().copied().collect();
    let mut wrong = Vec::new();
    for (name, size) in sizes.into_iter().filter(|(_, size)| *size > most) {
        match listed.remove(name.as_str()) {
            None => wrong.push(format!("{name}: {size} {what}, of which {most} are allowed")),
            Some(before) if size > before => {
                wrong.push(format!("{name}: {size} {what}, {before} before"));
            }
            Some(before) if size < before => {
                wrong.push(format!("{name}: {size} {what}; list it with {size}, not {before}"));
            }
            Some(_) => {}
        }
    }
    let over = |name: &&str| format!("{name}: no longer too many {what}; take it off the list");
    wrong.extend(listed.keys().map(over));
    wrong
}

#[test]
fn types_of_the_broker_are_small() {
    let mut types = Types::default();
    broker().values().for_each(|text| add_types(text, &mut types));
    assert!(types.structs.len() > 100, "only {} structs found", types.structs.len());
    let structs = types.structs.iter().filter(|(name, fields)| !types.is_record(name, fields));
    let fields = structs.map(|(name, fields)| (name.clone(), fields.len()));
    let mut all = wrong("fields", FIELDS_MOST, FIELDS, fields);
    all.extend(wrong("methods", METHODS_MOST, METHODS, types.methods.clone()));
    assert_none("types of src/broker", &all);
}

#[test]
fn import_cycles_of_the_broker_are_small() {
    let modules = broker();
    let all = wrong("files in a cycle", CYCLE_MOST, CYCLES, cycles(&imports(&modules)));
    assert_none("import cycles of src/broker", &all);
}

#[test]
fn this_test_sees_types() {
    let mut types = Types::default();
    let text = "pub(crate) struct A<T>\nwhere\n    T: B,\n{\n    /// c: d\n    pub(crate) e: u64,\n    \
                f: Arc<T>,\n}\n\nstruct G(u8);\nstruct H {\n    i: Vec<u8>,\n}\n";
    add_types(text, &mut types);
    let text = "impl<T> A<T> {\n    const J: u8 = 1;\n\n    pub async fn k(&self) {\n        fn l() {}\n    \
                }\n}\nimpl From<H> for A<u8> {\n    fn from(h: H) {}\n}\n";
    add_types(text, &mut types);
    let fields =
        |kinds: &[&str]| -> Vec<String> { kinds.iter().map(|it| (*it).to_owned()).collect() };
    let structs = [("A", fields(&["u64", "Arc<T>"])), ("H", fields(&["Vec<u8>"]))];
    assert_eq!(types.structs, structs.map(|(name, fields)| (name.to_owned(), fields)));
    assert_eq!(types.methods, [("A".to_owned(), 1)].into());
    assert!(types.is_record("H", &fields(&["Vec<u8>"])), "values, and no methods");
    assert!(!types.is_record("H", &fields(&["Arc<T>"])), "shared");
    assert!(!types.is_record("A", &fields(&["Vec<u8>"])), "it has a method");
    assert!(types.is_record("A", &fields(&["u64", "Counter"])), "all are figures");
}

#[test]
fn this_test_sees_cycles() {
    let module = |path: &str| -> Module { path.split("::").map(str::to_owned).collect() };
    let modules: BTreeMap<Module, String> = [
        ("a", "use std::fmt;\nuse crate::{\n    b::{C, d},\n    e::F,\n};\nuse crate::a::G;\n"),
        ("b", "fn f() {}\n"),
        ("b::d", "use super::super::a::{self};\n"),
        ("e", "pub(crate) use crate::b::d::H;\nuse crate::I;\n"),
        ("j", "use crate::a;\n"),
    ]
    .map(|(path, text)| (module(path), text.to_owned()))
    .into();
    let imports = imports(&modules);
    let of = |path: &str| imports.get(&module(path)).cloned().unwrap_or_default();
    assert_eq!(of("a"), ["b", "b::d", "e"].map(module).into());
    assert_eq!(of("b::d"), [module("a")].into());
    assert_eq!(of("e"), [module("b::d")].into());
    assert_eq!(cycles(&imports), [("a".to_owned(), 3)].into());
}

#[test]
fn this_test_sees_what_is_listed_wrongly() {
    let sizes = || [("a", 3), ("b", 4), ("c", 2)].map(|(name, size)| (name.to_owned(), size));
    assert!(wrong("x", 2, &[("a", 3), ("b", 4)], sizes()).is_empty());
    assert_eq!(wrong("x", 4, &[], sizes()).len(), 0);
    assert_eq!(wrong("x", 2, &[("b", 4)], sizes()).len(), 1, "one that is not listed");
    assert_eq!(wrong("x", 2, &[("a", 3), ("b", 3)], sizes()).len(), 1, "one that has grown");
    assert_eq!(wrong("x", 2, &[("a", 4), ("b", 4)], sizes()).len(), 1, "one that has shrunk");
    assert_eq!(wrong("x", 3, &[("a", 3), ("b", 4)], sizes()).len(), 1, "one that is small");
}
