//! A table as LaTeX, for a paper's appendix: plain ASCII, with rules from the package booktabs.

use std::fmt::Write as _;

use super::{Cell, Shape, Table};

impl Table {
    /// Returns the table in LaTeX. It needs only `\usepackage{booktabs}`.
    pub fn latex(&self) -> String {
        let sides: String =
            self.columns.iter().map(|c| if c.shape == Shape::Words { 'l' } else { 'r' }).collect();
        let mut text = String::from("\\begin{table}\n  \\centering\n");
        _ = writeln!(text, "  \\caption{{{}}}", plain(&format!("{}. {}", self.title, self.note)).trim_end());
        _ = writeln!(text, "  \\begin{{tabular}}{{{sides}}}\n    \\toprule");
        row(&mut text, self.columns.iter().map(|column| plain(&column.head)));
        text.push_str("    \\midrule\n");
        for cells in &self.rows {
            row(&mut text, cells.iter().map(cell));
        }
        text.push_str("    \\bottomrule\n  \\end{tabular}\n\\end{table}\n");
        text
    }
}

fn row(text: &mut String, cells: impl Iterator<Item = String>) {
    let cells: Vec<String> = cells.collect();
    _ = writeln!(text, "    {} \\\\", cells.join(" & "));
}

/// Formats a cell: names as code, intervals smaller than their numbers.
fn cell(cell: &Cell) -> String {
    match (cell, cell.lines()) {
        (Cell::Arm(..) | Cell::Hash(_), (name, _)) => format!("\\texttt{{{}}}", plain(&name)),
        (_, (first, Some(second))) => format!("{} {{\\footnotesize {}}}", plain(&first), plain(&second)),
        (_, (first, None)) => plain(&first),
    }
}

/// Escapes text for LaTeX, in ASCII. An unknown character becomes `?`, so that the file compiles.
fn plain(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' | '%' | '$' | '#' | '_' | '{' | '}' => safe.extend(['\\', c]),
            '\\' => safe.push_str("\\textbackslash{}"),
            '~' => safe.push_str("\\textasciitilde{}"),
            '^' => safe.push_str("\\textasciicircum{}"),
            // A bracket after the end of a row would be an argument of it.
            '[' => safe.push_str("{[}"),
            ']' => safe.push_str("{]}"),
            '<' => safe.push_str("$<$"),
            '>' => safe.push_str("$>$"),
            '|' => safe.push_str("$|$"),
            '"' => safe.push_str("''"),
            '\u{2212}' => safe.push_str("$-$"),
            '×' => safe.push_str("$\\times$"),
            '±' => safe.push_str("$\\pm$"),
            '·' => safe.push_str("$\\cdot$"),
            '≥' => safe.push_str("$\\ge$"),
            '≤' => safe.push_str("$\\le$"),
            '–' => safe.push_str("--"),
            '—' => safe.push_str("---"),
            '…' => safe.push_str("\\ldots{}"),
            '\u{a0}' => safe.push('~'),
            '\n' | '\r' | '\t' => safe.push(' '),
            c if c.is_ascii() && !c.is_ascii_control() => safe.push(c),
            _ => safe.push('?'),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::number;
    use crate::report::Estimate;
    use crate::tables::Column;

    #[test]
    fn what_latex_reads_otherwise_is_escaped() {
        let table = Table {
            name: "made",
            title: "Cost & accuracy".to_owned(),
            note: "At 40 %, \u{2264} 3_2".to_owned(),
            columns: vec![
                Column::new("arm", "arm", Shape::Words),
                Column::new("ratio", "than the baseline", Shape::Estimate),
            ],
            rows: vec![
                vec![
                    Cell::Arm(0, "my_rule#1".to_owned()),
                    Cell::Ratio(Estimate { value: 1.5, low: Some(1.2), high: Some(1.8) }),
                ],
                vec![Cell::Arm(1, "日本".to_owned()), Cell::None(number::NONE, "why")],
            ],
        };
        let expected = r"\begin{table}
  \centering
  \caption{Cost \& accuracy. At 40 \%, $\le$ 3\_2}
  \begin{tabular}{lr}
    \toprule
    arm & than the baseline \\
    \midrule
    \texttt{my\_rule\#1} & 1.50$\times$ fewer {\footnotesize {[}1.20, 1.80{]}} \\
    \texttt{??} & -- \\
    \bottomrule
  \end{tabular}
\end{table}
";
        assert_eq!(table.latex(), expected);
    }
}
