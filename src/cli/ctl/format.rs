//! Lists as text: tab separated, CSV, JSON, boxes, Erlang terms.

use super::options::Formatter;
use super::value::Value;
use serde_json::json;

/// A list to be printed.
#[derive(Debug)]
pub(crate) struct Sheet {
    pub(crate) columns: Vec<String>,
    /// Each row is as long as `columns`.
    pub(crate) rows: Vec<Vec<Value>>,
}

/// The list as text; without rows there is no header, as in rabbitmqctl.
pub(crate) fn render(sheet: &Sheet, formatter: Formatter, headers: bool) -> String {
    match formatter {
        Formatter::Table => table(sheet, headers),
        Formatter::Csv => csv(sheet),
        Formatter::Json => json(sheet),
        Formatter::Pretty => pretty(sheet, headers),
        Formatter::Erlang => erlang(sheet),
    }
}

fn table(sheet: &Sheet, headers: bool) -> String {
    let mut lines = Vec::with_capacity(sheet.rows.len() + 1);
    if headers && !sheet.rows.is_empty() {
        lines.push(sheet.columns.join("\t"));
    }
    lines.extend(sheet.rows.iter().map(|row| {
        let cells: Vec<String> = row.iter().map(Value::plain).collect();
        cells.join("\t")
    }));
    ended(lines)
}

fn csv(sheet: &Sheet) -> String {
    if sheet.rows.is_empty() {
        return String::new();
    }
    let line = |cells: Vec<String>| {
        let cells: Vec<String> =
            cells.iter().map(|cell| format!("\"{}\"", cell.replace('"', "\"\""))).collect();
        cells.join(",")
    };
    let mut lines = vec![line(sheet.columns.clone())];
    lines.extend(sheet.rows.iter().map(|row| line(row.iter().map(Value::plain).collect())));
    ended(lines)
}

/// One object on each line, so that a long list can be read while it arrives.
fn json(sheet: &Sheet) -> String {
    let mut lines = vec!["[".to_owned()];
    for (at, row) in sheet.rows.iter().enumerate() {
        let fields: Vec<String> = sheet
            .columns
            .iter()
            .zip(row)
            .map(|(column, value)| format!("{}:{}", json!(column), value.json()))
            .collect();
        let comma = if at == 0 { "" } else { "," };
        lines.push(format!("{comma}{{{}}}", fields.join(",")));
    }
    lines.push("]".to_owned());
    ended(lines)
}

fn pretty(sheet: &Sheet, headers: bool) -> String {
    if sheet.rows.is_empty() {
        return String::new();
    }
    let mut rows: Vec<Vec<String>> =
        sheet.rows.iter().map(|row| row.iter().map(Value::plain).collect()).collect();
    if headers {
        rows.insert(0, sheet.columns.clone());
    }
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..sheet.columns.len()).map(width).collect();
    let rule = |left: &str, middle: &str, right: &str| {
        let parts: Vec<String> = widths.iter().map(|width| "─".repeat(width + 2)).collect();
        format!("{left}{}{right}", parts.join(middle))
    };
    let mut lines = Vec::with_capacity(rows.len() * 2 + 1);
    for (at, row) in rows.iter().enumerate() {
        lines.push(if at == 0 { rule("┌", "┬", "┐") } else { rule("├", "┼", "┤") });
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!(" {cell:<width$} ")).collect();
        lines.push(format!("│{}│", cells.join("│")));
    }
    lines.push(rule("└", "┴", "┘"));
    ended(lines)
}

fn erlang(sheet: &Sheet) -> String {
    let rows: Vec<String> = sheet
        .rows
        .iter()
        .map(|row| {
            let fields: Vec<String> = sheet
                .columns
                .iter()
                .zip(row)
                .map(|(column, value)| format!("{{{column},{}}}", value.erlang()))
                .collect();
            format!("[{}]", fields.join(","))
        })
        .collect();
    format!("[{}]\n", rows.join(",\n "))
}

fn ended(lines: Vec<String>) -> String {
    lines.into_iter().map(|line| line + "\n").collect()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use expect_test::expect;
    use quorate_types::{FieldTable, FieldValue, ShortString};

    fn sheet() -> Sheet {
        let name = |name: &str| ShortString::try_from(name).unwrap();
        let arguments = FieldTable(vec![
            (name("k"), FieldValue::I64(1)),
            (name("l"), FieldValue::Array(vec![FieldValue::I64(1), FieldValue::Bool(true)])),
            (name("s"), FieldValue::text("v\"w")),
            (name("t"), FieldValue::Table(FieldTable(vec![(name("d"), FieldValue::F64(0.5))]))),
        ]);
        Sheet {
            columns: ["name", "messages", "durable", "members", "arguments"]
                .map(str::to_owned)
                .to_vec(),
            rows: vec![
                vec![
                    Value::text("tab\tq"),
                    Value::Empty,
                    Value::Bool(false),
                    Value::Words(Vec::new()),
                    Value::Table(FieldTable::default()),
                ],
                vec![
                    Value::text("orders"),
                    Value::Number(12),
                    Value::Bool(true),
                    Value::Words(vec!["rabbit1@h".to_owned(), "rabbit2@h.x".to_owned()]),
                    Value::Table(arguments),
                ],
            ],
        }
    }

    #[test]
    fn tables_are_tab_separated_with_a_header() {
        expect![[r#"
            name	messages	durable	members	arguments
            tab\tq		false	[]	[]
            orders	12	true	[rabbit1@h, rabbit2@h.x]	[{"k",1},{"l",[1,true]},{"s","v\"w"},{"t",[{"d",0.5}]}]
        "#]].assert_eq(&render(&sheet(), Formatter::Table, true));
        let bare = render(&sheet(), Formatter::Table, false);
        assert_eq!(bare.lines().count(), 2);
    }

    #[test]
    fn csv_quotes_every_cell() {
        expect![[r#"
            "name","messages","durable","members","arguments"
            "tab\tq","","false","[]","[]"
            "orders","12","true","[rabbit1@h, rabbit2@h.x]","[{""k"",1},{""l"",[1,true]},{""s"",""v\""w""},{""t"",[{""d"",0.5}]}]"
        "#]].assert_eq(&render(&sheet(), Formatter::Csv, true));
    }

    #[test]
    fn json_is_one_object_a_line() {
        let text = render(&sheet(), Formatter::Json, true);
        expect![[r#"
            [
            {"name":"tab\tq","messages":"","durable":false,"members":[],"arguments":[]}
            ,{"name":"orders","messages":12,"durable":true,"members":["rabbit1@h","rabbit2@h.x"],"arguments":[["k","long",1],["l","array",[["long",1],["bool",true]]],["s","longstr","v\"w"],["t","table",[["d","double",0.5]]]]}
            ]
        "#]].assert_eq(&text);
        let parsed: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(parsed.as_array().unwrap().len(), 2);
    }

    #[test]
    fn pretty_tables_have_boxes() {
        expect![[r#"
            ┌────────┬──────────┬─────────┬──────────────────────────┬─────────────────────────────────────────────────────────┐
            │ name   │ messages │ durable │ members                  │ arguments                                               │
            ├────────┼──────────┼─────────┼──────────────────────────┼─────────────────────────────────────────────────────────┤
            │ tab\tq │          │ false   │ []                       │ []                                                      │
            ├────────┼──────────┼─────────┼──────────────────────────┼─────────────────────────────────────────────────────────┤
            │ orders │ 12       │ true    │ [rabbit1@h, rabbit2@h.x] │ [{"k",1},{"l",[1,true]},{"s","v\"w"},{"t",[{"d",0.5}]}] │
            └────────┴──────────┴─────────┴──────────────────────────┴─────────────────────────────────────────────────────────┘
        "#]].assert_eq(&render(&sheet(), Formatter::Pretty, true));
    }

    #[test]
    fn erlang_terms_can_be_consulted() {
        expect![[r#"
            [[{name,<<"tab\tq">>},{messages,''},{durable,false},{members,[]},{arguments,[]}],
             [{name,<<"orders">>},{messages,12},{durable,true},{members,[rabbit1@h,'rabbit2@h.x']},{arguments,[{<<"k">>,long,1},{<<"l">>,array,[{long,1},{bool,true}]},{<<"s">>,longstr,<<"v\"w">>},{<<"t">>,table,[{<<"d">>,double,0.5}]}]}]]
        "#]].assert_eq(&render(&sheet(), Formatter::Erlang, true));
    }

    /// Names that clients choose cannot send control sequences to the terminal of the reader.
    #[test]
    fn control_characters_are_shown_and_not_written() {
        let name = "\u{1b}[2J\u{7}\u{9b}31m\nq";
        let field = (ShortString::try_from(name).unwrap(), FieldValue::text(name));
        let row = vec![
            Value::text(name),
            Value::word(name),
            Value::Words(vec![name.to_owned()]),
            Value::Table(FieldTable(vec![field])),
        ];
        let columns = ["name", "state", "members", "arguments"].map(str::to_owned).to_vec();
        let sheet = Sheet { columns, rows: vec![row] };
        for formatter in [Formatter::Table, Formatter::Csv, Formatter::Pretty, Formatter::Erlang] {
            let text = render(&sheet, formatter, false);
            let control = |letter: char| letter.is_control() && !"\n\t".contains(letter);
            assert!(!text.contains(control), "{formatter:?}: {text:?}");
            assert!(text.contains("\\x{1b}[2J") && !text.contains("31m\n"), "{text}");
        }
    }

    #[test]
    fn without_rows_there_is_no_header() {
        let empty = Sheet { columns: vec!["name".to_owned()], rows: Vec::new() };
        let all = [
            Formatter::Table,
            Formatter::Csv,
            Formatter::Json,
            Formatter::Pretty,
            Formatter::Erlang,
        ]
        .map(|formatter| render(&empty, formatter, true));
        assert_eq!(all, ["", "", "[\n]\n", "", "[]\n"]);
    }
}
