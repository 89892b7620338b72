//! What every list takes: pages, a filter of names, an order and a choice of columns. Pure.

use crate::api::columns::Columns;
use crate::api::order::Key;
use crate::api::refusal::{Refusal, bad_request};
use crate::api::uri::Query;
use crate::name_filter::NameFilter;
use serde_json::{Value, json};
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

/// Objects of a page, if the request does not say.
const PAGE_SIZE: usize = 100;
/// Most objects of a page.
const PAGE_SIZE_MAX: usize = 500;
/// Bytes of a filter of names.
const FILTER_BYTES_MAX: usize = 1_024;
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

/// Makes the objects of some rows.
type Objects = dyn Fn(&[usize], Wanted<'_>) -> Vec<Value> + Send;
/// Makes the values at a path, of all rows.
type Column = dyn Fn(&[&str]) -> Vec<Option<Value>> + Send;

/// A large list, whose objects are made when they are needed, each as far as it is needed.
pub(crate) struct Rows {
    pub(crate) count: usize,
    pub(crate) objects: Box<Objects>,
    pub(crate) column: Box<Column>,
    /// The rows that the request asks for, if they are known already.
    pub(crate) chosen: Option<Chosen>,
}

/// The rows of a list that a request asks for, in their order.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) rows: Vec<usize>,
    /// Number of rows that the filter matches.
    matching: usize,
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
    filter: Option<NameFilter>,
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
        let total = items.len();
        let value = |item: &Value, path: &[&str]| at(item, path).cloned();
        let column = |path: &[&str]| items.iter().map(|item| value(item, path)).collect();
        let Chosen { rows, matching } = self.chosen(total, column, order)?;
        let mut items: Vec<Option<Value>> = items.into_iter().map(Some).collect();
        let shown = rows.into_iter().filter_map(|row| items.get_mut(row)?.take());
        Ok(self.answer(shown, matching, total))
    }

    /// As [`Listing::of_list`], of rows whose objects take long to make: of all rows only the values
    /// that decide about their order are made, and those of the page then have the wanted columns.
    ///
    /// # Errors
    /// 400 if there is no such page.
    pub(crate) fn of_rows(&self, rows: &Rows, order: &[&str]) -> Result<Value, Refusal> {
        let chosen;
        let Chosen { rows: chosen, matching } = match &rows.chosen {
            Some(known) => known,
            None => {
                chosen = self.chosen(rows.count, &rows.column, order)?;
                &chosen
            }
        };
        let shown = self.columns.first_names();
        let shown = shown.as_ref().map_or(Wanted::All, Wanted::Only);
        // Whole objects are larger than their columns, so that few are there at a time.
        let parts = chosen.chunks(PAGE_SIZE);
        let items = parts.flat_map(|part| (rows.objects)(part, shown));
        Ok(self.answer(items, *matching, rows.count))
    }

    /// True if a page of a list is asked for.
    pub(crate) fn is_page(&self) -> bool {
        self.page.is_some()
    }

    /// The rows that [`Listing::of_rows`] shows. `column` gives the values at a path, of all rows.
    ///
    /// # Errors
    /// 400 if there is no such page.
    pub(crate) fn chosen(
        &self,
        count: usize,
        column: impl Fn(&[&str]) -> Vec<Option<Value>>,
        order: &[&str],
    ) -> Result<Chosen, Refusal> {
        let mut rows: Vec<usize> = (0..count).collect();
        if let Some(filter) = self.page.as_ref().and_then(|page| page.filter.as_ref()) {
            let names = column(&["name"]);
            let name = |row: usize| names.get(row)?.as_ref()?.as_str();
            rows.retain(|row| name(*row).is_some_and(|name| filter.is_match(name)));
            filter.check().or_else(|why| bad_request(format!("name {why}")))?;
        }
        let matching = rows.len();
        let shown = match &self.page {
            None => 0..matching,
            Some(page) => page.of(matching)?,
        };
        self.sort(&mut rows, shown.end, column, order);
        Ok(Chosen { rows: rows.get(shown).unwrap_or_default().to_vec(), matching })
    }

    /// The answer with these items. `matching` is the number of objects that the filter matches, `total` the
    /// number of all objects of the list.
    fn answer(&self, items: impl Iterator<Item = Value>, matching: usize, total: usize) -> Value {
        let items: Vec<Value> = items.map(|item| self.columns.of(item)).collect();
        let Some(page) = &self.page else { return Value::Array(items) };
        json!({
            "total_count": total,
            "filtered_count": matching,
            "item_count": items.len(),
            "page": page.number,
            "page_size": page.size,
            "page_count": matching.div_ceil(page.size),
            "items": items,
        })
    }

    /// The answer with one object.
    pub(crate) fn of_object(&self, object: Value) -> Value {
        self.columns.of(object)
    }

    /// Sorts only the rows that the page needs: afterwards the first `first` rows are the first ones of the
    /// order, sorted, and the others follow in any order. Rows with equal keys keep their order;
    /// `sort_reverse` reverses it.
    fn sort(
        &self,
        mut rows: &mut [usize],
        first: usize,
        column: impl Fn(&[&str]) -> Vec<Option<Value>>,
        order: &[&str],
    ) {
        let mut paths: Vec<&str> = Vec::new();
        for path in self.sort.iter().map(String::as_str).chain(order.iter().copied()) {
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
        // Each key is looked up once and not with every comparison.
        let keys = |path: &&str| -> Vec<Key> {
            let path: Vec<&str> = path.split('.').collect();
            column(&path).into_iter().map(Key::of).collect()
        };
        let columns: Vec<Vec<Key>> = paths.iter().map(keys).collect();
        let compare = |left: &usize, right: &usize| {
            let (left, right) = if self.reverse { (right, left) } else { (left, right) };
            let keys = columns.iter().map(|keys| keys.get(*left).cmp(&keys.get(*right)));
            keys.chain([left.cmp(right)]).find(|it| it.is_ne()).unwrap_or(Ordering::Equal)
        };
        if first < rows.len() {
            (rows, ..) = rows.select_nth_unstable_by(first, compare);
        }
        rows.sort_unstable_by(compare);
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

    /// The indexes of this page in a sorted list of `count` objects.
    fn of(&self, count: usize) -> Result<Range<usize>, Refusal> {
        let skipped = (self.number - 1).saturating_mul(self.size);
        if skipped > count {
            let (page, size) = (self.number, self.size);
            return Err(Refusal::BadPage {
                error: "page_out_of_range",
                reason: format!("Page out of range, page: {page} page size: {size}, len: {count}"),
            });
        }
        Ok(skipped..count.min(skipped.saturating_add(self.size)))
    }
}

/// The filter of names: a part of the name, or a regular expression; in either case of letters.
fn filter(query: &Query) -> Result<Option<NameFilter>, Refusal> {
    let Some(text) = query.get("name").filter(|text| !text.is_empty()) else { return Ok(None) };
    if text.len() > FILTER_BYTES_MAX {
        return bad_request(format!("name must not exceed {FILTER_BYTES_MAX} bytes"));
    }
    let source = if query.is_true("use_regex") { text.to_owned() } else { regex::escape(text) };
    match NameFilter::new(&source, true) {
        Ok(filter) => Ok(Some(filter)),
        Err(error) => bad_request(format!("name is not a regular expression: {error}")),
    }
}

/// The value at a path of names below a value.
pub(crate) fn below(mut value: Value, path: &[&str]) -> Option<Value> {
    for name in path {
        value = value.get_mut(name)?.take();
    }
    Some(value)
}

/// The value at a path of names.
fn at<'a>(item: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(item, |value, name| value.get(name))
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
        let object = |row: usize, wanted: Wanted<'_>| {
            let fields = [
                ("name", json!(format!("q{row:03}"))),
                ("vhost", json!("/")),
                ("stats", json!({ "in": 1_000 - row })),
            ];
            let fields = fields.into_iter().filter(|(name, _)| wanted.has(name));
            fields.map(|(name, value)| (name.to_owned(), value)).collect::<Value>()
        };
        let objects = move |rows: &[usize], wanted: Wanted<'_>| -> Vec<Value> {
            count.fetch_add(rows.len(), atomic::Ordering::Relaxed);
            rows.iter().map(|row| object(*row, wanted)).collect()
        };
        let column = move |path: &[&str]| {
            (0..1_000).map(|row| at(&object(row, Wanted::All), path).cloned()).collect()
        };
        let (objects, column) = (Box::new(objects), Box::new(column));
        let mut rows = Rows { count: 1_000, objects, column, chosen: None };
        let mut listed = |query: &str| {
            let listing = Listing::parse(&Query::parse(query).unwrap()).unwrap();
            let order = ["vhost", "name"];
            let listed = listing.of_rows(&rows, &order).unwrap();
            let made_of_rows = made.swap(0, atomic::Ordering::Relaxed);
            rows.chosen = Some(listing.chosen(rows.count, &rows.column, &order).unwrap());
            assert_eq!(listing.of_rows(&rows, &order).unwrap(), listed);
            rows.chosen = None;
            made.store(0, atomic::Ordering::Relaxed);
            (names(&listed).join(" "), made_of_rows)
        };
        let mut page = |query: &str| listed(&format!("page=2&page_size=2&{query}"));
        assert_eq!(page(""), ("q002 q003".to_owned(), 2));
        assert_eq!(page("name=q5&sort=name&sort_reverse=true"), ("q597 q596".to_owned(), 2));
        assert_eq!(page("sort=stats.in"), ("q997 q996".to_owned(), 2));
        assert_eq!(page("sort=stats.in&columns=name"), ("q997 q996".to_owned(), 2));
        assert_eq!(listed("").1, 1_000);
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
