//! Prometheus's exposition format 0.0.4 and OpenMetrics 1.0, written by hand.

use std::fmt::{Display, Write};

use crate::telemetry::instruments::{QUANTILES, Summary};
use crate::telemetry::names::{Family, Type};

/// How a page is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    /// OpenMetrics instead of the older text format.
    pub open_metrics: bool,
    /// Labels as Kafka's exporters spell them (`clientId`): what boards ask for. Else in snake_case, as
    /// Prometheus's linter wants them.
    pub kafka_labels: bool,
}

impl Format {
    /// Prometheus's older format, which `promtool check metrics` reads.
    pub const TEXT: Self = Self {
        open_metrics: false,
        kafka_labels: false,
    };
    /// What Prometheus asks for.
    pub const OPEN_METRICS: Self = Self {
        open_metrics: true,
        kafka_labels: true,
    };

    /// The `Content-Type` of a page.
    pub fn content_type(self) -> &'static str {
        match self.open_metrics {
            true => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            false => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    fn label(self, family: Family, name: &str) -> &str {
        if !self.kafka_labels || !family.name.starts_with("kafka_") {
            return name;
        }
        match name {
            "client_id" => "clientId",
            "client_software_name" => "clientSoftwareName",
            "client_software_version" => "clientSoftwareVersion",
            "delayed_operation" => "delayedOperation",
            "network_processor" => "networkProcessor",
            other => other,
        }
    }
}

/// A label with its value.
pub(super) type Label<'a> = (&'a str, &'a dyn Display);

/// Text of a page, with what it holds.
#[derive(Debug)]
pub(super) struct Out {
    pub(super) text: String,
    pub(super) format: Format,
    /// Series that have labels.
    pub(super) labelled: usize,
}

impl Out {
    pub(super) fn new(format: Format) -> Self {
        Self {
            text: String::new(),
            format,
            labelled: 0,
        }
    }

    /// A family of one series without labels; counters too.
    pub(super) fn one(&mut self, family: Family, value: impl Display) {
        Series::begin(self, family).sample(&[], value);
    }
}

/// Writes one family: its header, then its series.
pub(super) struct Series<'a> {
    out: &'a mut Out,
    family: Family,
}

impl<'a> Series<'a> {
    pub(super) fn begin(out: &'a mut Out, family: Family) -> Self {
        let open = out.format.open_metrics;
        let kind = match family.kind {
            Type::Counter => "counter",
            Type::Gauge => "gauge",
            Type::Summary => "summary",
            Type::Untyped if open => "unknown",
            Type::Untyped => "untyped",
        };
        // In OpenMetrics a counter is called without the ending of its series.
        let name = match family.kind {
            Type::Counter if open => family.name.strip_suffix("_total").unwrap_or(family.name),
            _ => family.name,
        };
        // Writing to a `String` cannot fail, here and below.
        let _ = writeln!(out.text, "# HELP {name} {}", family.help);
        let _ = writeln!(out.text, "# TYPE {name} {kind}");
        Self { out, family }
    }

    pub(super) fn sample(&mut self, labels: &[Label<'_>], value: impl Display) {
        self.suffixed("", labels, value);
    }

    /// The same with labels that are written already, as [`labels`] writes them.
    pub(super) fn written(&mut self, labels: &str, value: impl Display) {
        let text = &mut self.out.text;
        text.push_str(self.family.name);
        text.push('{');
        text.push_str(labels);
        let _ = writeln!(text, "}} {value}");
        self.out.labelled += 1;
    }

    fn suffixed(&mut self, suffix: &str, labels: &[Label<'_>], value: impl Display) {
        let Out { text, format, .. } = &mut *self.out;
        let _ = write!(text, "{}{suffix}", self.family.name);
        for (index, (name, value)) in labels.iter().enumerate() {
            text.push(if index == 0 { '{' } else { ',' });
            label(text, format.label(self.family, name), value);
        }
        if !labels.is_empty() {
            text.push('}');
            self.out.labelled += 1;
        }
        let _ = writeln!(self.out.text, " {value}");
    }

    pub(super) fn summary(&mut self, labels: &[Label<'_>], summary: &Summary) {
        for (quantile, value) in QUANTILES.iter().zip(summary.quantiles_ms) {
            let quantile = format!("{quantile:.2}");
            let quantile = if quantile == "1.00" {
                "0.999"
            } else {
                &quantile
            };
            let mut all = labels.to_vec();
            all.push(("quantile", &quantile));
            self.sample(&all, value);
        }
        let sum = summary.sum.as_secs_f64() * 1_000.0;
        self.sum_and_count(labels, sum, summary.count);
    }

    pub(super) fn sum_and_count(&mut self, labels: &[Label<'_>], sum: f64, count: u64) {
        self.suffixed("_sum", labels, sum);
        self.suffixed("_count", labels, count);
    }
}

/// `name="value"`.
fn label(text: &mut String, name: &str, value: &dyn Display) {
    text.push_str(name);
    text.push_str("=\"");
    let _ = write!(Escaped(text), "{value}");
    text.push('"');
}

/// Labels with commas between them, for [`Series::written`]. Their names are the same in every format.
pub(super) fn labels(text: &mut String, labels: &[Label<'_>]) {
    for (index, (name, value)) in labels.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        label(text, name, value);
    }
}

/// Escapes what is written as a label value.
struct Escaped<'a>(&'a mut String);

impl Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        if !text.contains(['\\', '"', '\n']) {
            self.0.push_str(text);
            return Ok(());
        }
        for character in text.chars() {
            match character {
                '\\' => self.0.push_str("\\\\"),
                '"' => self.0.push_str("\\\""),
                '\n' => self.0.push_str("\\n"),
                other => self.0.push(other),
            }
        }
        Ok(())
    }
}
