//! Tables.

use std::fmt::Write as _;

/// Rows under headings; columns as wide as what is in them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Table {
    headings: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(headings: &[&'static str]) -> Self {
        Self {
            headings: headings.to_vec(),
            rows: Vec::new(),
        }
    }

    pub(super) fn row(&mut self, columns: impl IntoIterator<Item = String>) {
        self.rows.push(columns.into_iter().collect());
    }

    /// Numbers are set to the right.
    pub(super) fn text(&self) -> String {
        let count = self.headings.len();
        let mut widths: Vec<usize> = self.headings.iter().map(|heading| heading.len()).collect();
        let mut numbers = vec![!self.rows.is_empty(); count];
        for row in &self.rows {
            for (index, cell) in row.iter().enumerate().take(count) {
                widths[index] = widths[index].max(cell.chars().count());
                let is_number = cell.parse::<i64>().is_ok() || cell == "-";
                numbers[index] &= is_number;
            }
        }
        let mut text = String::new();
        let headings: Vec<String> = self.headings.iter().map(ToString::to_string).collect();
        for row in std::iter::once(&headings).chain(&self.rows) {
            let mut line = String::new();
            for (index, cell) in row.iter().enumerate().take(count) {
                let width = widths[index];
                let _ = match numbers[index] {
                    true => write!(line, "{cell:>width$}  "),
                    false => write!(line, "{cell:<width$}  "),
                };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// A value, or a dash.
pub(super) fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Numbers between commas.
pub(super) fn list(numbers: &[i32]) -> String {
    let texts: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    texts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_they_must_be() {
        let mut table = Table::new(&["TOPIC", "LAG"]);
        table.row(["orders".to_owned(), "12".to_owned()]);
        table.row(["a".to_owned(), or_dash(None::<i64>)]);
        assert_eq!(table.text(), "TOPIC   LAG\norders   12\na         -\n");
        assert_eq!(Table::new(&["A", "B"]).text(), "A  B\n");
        assert_eq!(list(&[1, 2]), "1,2");
    }
}
