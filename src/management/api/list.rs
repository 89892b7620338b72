//! What every list takes: pages, a filter of names, an order and a choice of columns. Pure.

use crate::api::order::Key;
use crate::api::refusal::{Refusal, bad_request};
use crate::api::uri::Query;
use regex::{Regex, RegexBuilder};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::fmt;

/// Objects of a page, if the request does not say.
const PAGE_SIZE: usize = 100;
/// Most objects of a page.
const PAGE_SIZE_MAX: usize = 500;
/// Bytes of a filter of names.
const FILTER_BYTES_MAX: usize = 1_024;
/// Bytes of a compiled regular expression. It is matched in time that is linear in the name.
const COMPILED_BYTES_MAX: usize = 1 << 17;
/// Columns that a list is cut to.
const COLUMNS_MAX: usize = 100;
/// Columns that it is sorted by.
const SORT_MAX: usize = 4;

/// What a request asks of a list.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    page: Option<Page>,
    sort: Vec<String>,
    reverse: bool,
    columns: Columns,
}

/// Which fields of an object are made.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wanted<'a> {
    All,
    /// Those of these names.
    Only(&'a BTreeSet<&'a str>),
}

impl Wanted<'_> {
    /// True if the field of that name is made.
    pub(crate) fn has(self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.contains(name),
        }
    }

    /// True if a field with rates is made.
    pub(crate) fn has_statistics(self) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => {
                names.iter().any(|name| *name == "message_stats" || name.ends_with("_details"))
            }
        }
    }
}

/// A large list, whose objects are made one by one, each as far as it is needed.
pub(crate) struct Rows {
    pub(crate) count: usize,
    /// The object of a row.
    pub(crate) object: Box<dyn Fn(usize, Wanted<'_>) -> Value + Send>,
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").field("count", &self.count).finish_non_exhaustive()
    }
}

/// A page of a list.
#[derive(Debug)]
struct Page {
    number: usize,
    size: usize,
    filter: Option<Regex>,
}

/// The columns that are wanted; paths of names, such as `message_stats.publish`.
#[derive(Debug, Default)]
enum Columns {
    #[default]
    All,
    Only(Vec<Vec<String>>),
}

impl Listing {
    /// Reads the parameters of a request.
    ///
    /// # Errors
    /// 400 that names what is wrong.
    pub(crate) fn parse(query: &Query) -> Result<Self, Refusal> {
        let words = |name, separator| -> Result<Vec<String>, Refusal> {
            let words = query.get(name).unwrap_or_default().split(separator);
            let words: Vec<_> =
                words.filter(|word: &&str| !word.is_empty()).map(str::to_owned).collect();
            let most = if name == "sort" { SORT_MAX } else { COLUMNS_MAX };
            if words.len() > most {
                return bad_request(format!("{name}: more than {most} columns"));
            }
            Ok(words)
        };
        let columns = match query.get("columns") {
            None => Columns::All,
            Some(_) => Columns::Only(
                words("columns", ',')?
                    .iter()
                    .map(|path| path.split('.').map(str::to_owned).collect())
                    .collect(),
            ),
        };
        Ok(Self {
            page: Page::parse(query)?,
            sort: words("sort", ',')?,
            reverse: query.is_true("sort_reverse"),
            columns,
        })
    }

    /// The answer with a list: an array, or an object with a page of it.
    ///
    /// # Errors
    /// 400 if there is no such page.
    pub(crate) fn of_list(&self, items: Vec<Value>, order: &[&str]) -> Result<Value, Refusal> {
        let items = items.into_iter().map(|item| (item, ())).collect();
        self.arranged(items, order, |item, ()| item)
    }

    /// As [`Listing::of_list`], of rows whose objects take long to make: of all rows only the fields
    /// that decide about their order are made, and those of the page then have the wanted columns.
    ///
    /// # Errors
    /// 400 if there is no such page.
    pub(crate) fn of_rows(&self, rows: &Rows, order: &[&str]) -> Result<Value, Refusal> {
        let shown = self.columns.first_names();
        let shown = shown.as_ref().map_or(Wanted::All, Wanted::Only);
        let items = self.deciding(rows.count, &rows.object, order);
        self.arranged(items, order, |_, row| (rows.object)(row, shown))
    }

    /// True if a page of a list is asked for.
    pub(crate) fn is_page(&self) -> bool {
        self.page.is_some()
    }

    /// The rows that [`Listing::of_rows`] shows.
    ///
    /// # Errors
    /// 400 if there is no such page.
    pub(crate) fn chosen(
        &self,
        count: usize,
        object: impl Fn(usize, Wanted<'_>) -> Value,
        order: &[&str],
    ) -> Result<Vec<usize>, Refusal> {
        let mut items = self.deciding(count, object, order);
        self.choose(&mut items, order);
        let items = match &self.page {
            None => items,
            Some(page) => page.of(items)?,
        };
        Ok(items.into_iter().map(|(_, row)| row).collect())
    }

    /// Of each row the fields that decide about its place.
    fn deciding(
        &self,
        count: usize,
        object: impl Fn(usize, Wanted<'_>) -> Value,
        order: &[&str],
    ) -> Vec<(Value, usize)> {
        let sorted_by = self.sort.iter().map(String::as_str).chain(order.iter().copied());
        let first = |path: &'_ str| path.split('.').next().unwrap_or_default().to_owned();
        let deciding: Vec<String> = sorted_by.map(first).chain(["name".to_owned()]).collect();
        let deciding = deciding.iter().map(String::as_str).collect();
        (0..count).map(|row| (object(row, Wanted::Only(&deciding)), row)).collect()
    }

    /// Leaves out the items that the filter does not match, and sorts the others.
    fn choose<T>(&self, items: &mut Vec<(Value, T)>, order: &[&str]) {
        if let Some(filter) = self.page.as_ref().and_then(|page| page.filter.as_ref()) {
            let name = |item: &Value| {
                item.get("name").and_then(Value::as_str).is_some_and(|name| filter.is_match(name))
            };
            items.retain(|(item, _)| name(item));
        }
        self.sort(items, order);
    }

    /// Filters, sorts and pages items by their values; `shown` makes what is shown of those that are
    /// left.
    fn arranged<T>(
        &self,
        mut items: Vec<(Value, T)>,
        order: &[&str],
        shown: impl Fn(Value, T) -> Value,
    ) -> Result<Value, Refusal> {
        let total = items.len();
        self.choose(&mut items, order);
        let shown = |(item, row)| self.columns.of(shown(item, row));
        let Some(page) = &self.page else { return Ok(items.into_iter().map(shown).collect()) };
        let filtered = items.len();
        let items: Vec<Value> = page.of(items)?.into_iter().map(shown).collect();
        Ok(json!({
            "total_count": total,
            "filtered_count": filtered,
            "item_count": items.len(),
            "page": page.number,
            "page_size": page.size,
            "page_count": filtered.div_ceil(page.size),
            "items": items,
        }))
    }

    /// The answer with one object.
    pub(crate) fn of_object(&self, object: Value) -> Value {
        self.columns.of(object)
    }

    fn sort<T>(&self, items: &mut Vec<(Value, T)>, order: &[&str]) {
        let given = self.sort.iter().map(String::as_str);
        let order: Vec<Vec<&str>> =
            given.chain(order.iter().copied()).map(|path| path.split('.').collect()).collect();
        // Each key is looked up once and not with every comparison.
        let key = |item: &Value| order.iter().map(|path| Key::of(at(item, path))).collect();
        let mut keyed: Vec<(Vec<Key>, (Value, T))> =
            items.drain(..).map(|item| (key(&item.0), item)).collect();
        keyed.sort_by(|(left, _), (right, _)| left.cmp(right));
        items.extend(keyed.into_iter().map(|(_, item)| item));
        if self.reverse {
            items.reverse();
        }
    }
}

impl Page {
    fn parse(query: &Query) -> Result<Option<Self>, Refusal> {
        let number = |name: &str| match query.get(name) {
            None => Ok(None),
            Some(text) => match text.parse::<i64>() {
                Ok(number) => Ok(Some(number)),
                Err(_) => bad_request("Pagination parameters are invalid"),
            },
        };
        let (page, size) = (number("page")?, number("page_size")?);
        let Some(page) = page else { return Ok(None) };
        let within = |value: i64, most: usize| {
            usize::try_from(value).ok().filter(|value| (1..=most).contains(value))
        };
        let asked = size.map_or(Some(PAGE_SIZE), |size| within(size, PAGE_SIZE_MAX));
        let (Some(number), Some(size)) = (within(page, usize::MAX), asked) else {
            let size = size.map_or("undefined".to_owned(), |size| size.to_string());
            return Err(Refusal::BadPage {
                error: "invalid_pagination_parameters",
                reason: format!(
                    "Invalid pagination parameters: page number {page}, page size {size}"
                ),
            });
        };
        Ok(Some(Self { number, size, filter: filter(query)? }))
    }

    /// The objects of this page.
    fn of<T>(&self, items: Vec<T>) -> Result<Vec<T>, Refusal> {
        let (count, skipped) = (items.len(), (self.number - 1).saturating_mul(self.size));
        if skipped > count {
            let (page, size) = (self.number, self.size);
            return Err(Refusal::BadPage {
                error: "page_out_of_range",
                reason: format!("Page out of range, page: {page} page size: {size}, len: {count}"),
            });
        }
        Ok(items.into_iter().skip(skipped).take(self.size).collect())
    }
}

/// The filter of names: a part of the name, or a regular expression; in either case of letters.
fn filter(query: &Query) -> Result<Option<Regex>, Refusal> {
    let Some(text) = query.get("name").filter(|text| !text.is_empty()) else { return Ok(None) };
    if text.len() > FILTER_BYTES_MAX {
        return bad_request(format!("name must not exceed {FILTER_BYTES_MAX} bytes"));
    }
    let source = if query.is_true("use_regex") { text.to_owned() } else { regex::escape(text) };
    let mut builder = RegexBuilder::new(&source);
    builder
        .case_insensitive(true)
        .size_limit(COMPILED_BYTES_MAX)
        .dfa_size_limit(COMPILED_BYTES_MAX);
    match builder.build() {
        Ok(filter) => Ok(Some(filter)),
        Err(error) => bad_request(format!("name is not a regular expression: {error}")),
    }
}

/// The value at a path of names. A missing one sorts as the number 0, as in RabbitMQ.
fn at<'a>(item: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(item, |value, name| value.get(name))
}

impl Columns {
    /// The names of the fields that have wanted columns; `None`: all fields are wanted.
    fn first_names(&self) -> Option<BTreeSet<&str>> {
        match self {
            Self::All => None,
            Self::Only(paths) => {
                Some(paths.iter().filter_map(|path| path.first()).map(String::as_str).collect())
            }
        }
    }

    /// The object with the wanted columns only.
    fn of(&self, item: Value) -> Value {
        match self {
            Self::All => item,
            Self::Only(paths) => {
                let paths: Vec<&[String]> = paths.iter().map(Vec::as_slice).collect();
                cut(item, &paths)
            }
        }
    }
}

/// Cuts an object, or each object of an array, to the fields at these paths.
fn cut(value: Value, paths: &[&[String]]) -> Value {
    match value {
        Value::Object(fields) => {
            let mut kept = Map::new();
            for (name, value) in fields {
                let below: Vec<&[String]> = paths
                    .iter()
                    .filter_map(|path| path.split_first())
                    .filter(|(first, _)| **first == name)
                    .map(|(_, rest)| rest)
                    .collect();
                if below.iter().any(|rest| rest.is_empty()) {
                    kept.insert(name, value);
                } else if !below.is_empty() {
                    kept.insert(name, cut(value, &below));
                }
            }
            Value::Object(kept)
        }
        Value::Array(values) => values.into_iter().map(|value| cut(value, paths)).collect(),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => other,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{self, AtomicUsize};

    fn listed(query: &str) -> Result<Value, Refusal> {
        let items = vec![
            json!({ "name": "b", "vhost": "/", "messages": 3, "stats": { "in": 1, "out": 2 } }),
            json!({ "name": "A1", "vhost": "/", "messages": 10 }),
            json!({ "name": "a2", "vhost": "v", "messages": 2, "stats": { "in": 9 } }),
        ];
        Listing::parse(&Query::parse(query).unwrap())?.of_list(items, &["vhost", "name"])
    }

    fn names(listed: &Value) -> Vec<&str> {
        let items = listed.get("items").unwrap_or(listed).as_array().unwrap();
        items.iter().map(|item| item.get("name").unwrap().as_str().unwrap()).collect()
    }

    #[test]
    fn a_list_is_sorted_by_its_order_or_by_the_given_columns() {
        for (query, expected) in [
            ("", ["A1", "b", "a2"]),
            ("sort=messages", ["a2", "b", "A1"]),
            ("sort=messages&sort_reverse=true", ["A1", "b", "a2"]),
            ("sort=stats.in", ["A1", "b", "a2"]),
            ("sort_reverse=true", ["a2", "b", "A1"]),
            ("sort=nothing", ["A1", "b", "a2"]),
        ] {
            assert_eq!(names(&listed(query).unwrap()), expected, "{query}");
        }
    }

    /// KEDA's query: `pagination=false` does not count where `page` is given.
    #[test]
    fn a_page_is_an_object() {
        let page = listed("page=1&use_regex=true&pagination=false&name=^a&page_size=1").unwrap();
        assert_eq!(names(&page), ["A1"]);
        let numbers: Vec<_> =
            ["total_count", "filtered_count", "item_count", "page", "page_size", "page_count"]
                .iter()
                .map(|name| page.get(*name).unwrap().as_u64().unwrap())
                .collect();
        assert_eq!(numbers, [3, 2, 1, 1, 1, 2]);
        let none = listed("page=1&name=none").unwrap();
        assert_eq!((none.get("page_count").unwrap().as_u64(), names(&none).len()), (Some(0), 0));
        // Without a page, names are not filtered.
        assert_eq!(names(&listed("name=b").unwrap()).len(), 3);
    }

    /// Of ten thousand queues, a page makes the objects of the page only, whatever it is sorted by.
    #[test]
    fn only_the_objects_of_a_page_are_made() {
        let made = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&made);
        let object = move |row: usize, wanted: Wanted<'_>| {
            let fields = [
                ("name", json!(format!("q{row:03}"))),
                ("vhost", json!("/")),
                ("stats", json!({ "in": 1_000 - row })),
                ("members", json!(["a", "b"])),
            ];
            let fields = fields.into_iter().filter(|(name, _)| wanted.has(name));
            let fields: Map<_, _> = fields.map(|(name, value)| (name.to_owned(), value)).collect();
            let whole = usize::from(fields.contains_key("members"));
            count.fetch_add(whole, atomic::Ordering::Relaxed);
            Value::Object(fields)
        };
        let rows = Rows { count: 1_000, object: Box::new(object) };
        let listed = |query: &str| {
            let listing = Listing::parse(&Query::parse(query).unwrap()).unwrap();
            let listed = listing.of_rows(&rows, &["vhost", "name"]).unwrap();
            let chosen = listing.chosen(rows.count, &rows.object, &["vhost", "name"]).unwrap();
            let chosen = chosen.iter().map(|row| format!("q{row:03}")).collect::<Vec<_>>();
            assert_eq!(chosen, names(&listed));
            (names(&listed).join(" "), made.swap(0, atomic::Ordering::Relaxed))
        };
        let page = |query: &str| listed(&format!("page=2&page_size=2&{query}"));
        assert_eq!(page(""), ("q002 q003".to_owned(), 2));
        assert_eq!(page("name=q5&sort=name&sort_reverse=true"), ("q597 q596".to_owned(), 2));
        assert_eq!(page("sort=stats.in"), ("q997 q996".to_owned(), 2));
        assert_eq!(page("sort=stats.in&columns=name"), ("q997 q996".to_owned(), 0));
        assert_eq!(listed("").1, 1_000);
        assert_eq!(listed("columns=name,stats.in").1, 0);
    }

    /// As in the golden reply.
    #[test]
    fn wrong_pages_are_refused_in_rabbitmqs_words() {
        let refused = listed("page=0").unwrap_err();
        assert_eq!(
            refused,
            Refusal::BadPage {
                error: "invalid_pagination_parameters",
                reason: "Invalid pagination parameters: page number 0, page size undefined"
                    .to_owned(),
            }
        );
        for wrong in ["page=x", "page=1&page_size=501", "page=1&page_size=0", "page=9", "page=-1"] {
            assert!(listed(wrong).is_err(), "{wrong}");
        }
        for wrong in ["(", "a{1000}{1000}{1000}", "(?=a)"] {
            let query = format!("page=1&use_regex=true&name={wrong}");
            assert!(matches!(listed(&query), Err(Refusal::BadRequest(_))), "{wrong}");
        }
        let long = format!("page=1&name={}", "a".repeat(FILTER_BYTES_MAX + 1));
        assert!(matches!(listed(&long), Err(Refusal::BadRequest(_))));
    }

    #[test]
    fn columns_are_cut_at_any_depth() {
        let cut = listed("columns=name,stats.in").unwrap();
        assert_eq!(
            cut,
            json!([
                { "name": "A1" },
                { "name": "b", "stats": { "in": 1 } },
                { "name": "a2", "stats": { "in": 9 } },
            ])
        );
        let object = json!({ "a": [{ "b": 1, "c": 2 }], "d": 3 });
        let listing = Listing::parse(&Query::parse("columns=a.b").unwrap()).unwrap();
        assert_eq!(listing.of_object(object), json!({ "a": [{ "b": 1 }] }));
    }
}
