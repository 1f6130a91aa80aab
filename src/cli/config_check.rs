//! `ottla config check`: what there is to say about a configuration file.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use crate::config::{Finding, Severity, explain};

/// The file cannot be read.
const EXIT_UNREADABLE: u8 = 2;

/// Exit status: 0 where a broker starts with the file, 1 where it does not (with --strict: where there is
/// anything to mend), 2 where the file cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct Check {
    /// Kafka's configuration file; `-` for standard input.
    #[arg(value_name = "server.properties")]
    file: PathBuf,

    /// Sets one key, whatever the file says; can be given many times.
    #[arg(long = "override", value_name = "key=value")]
    overrides: Vec<String>,

    /// One JSON object instead of text.
    #[arg(long)]
    json: bool,

    /// Warnings are failures too.
    #[arg(long)]
    strict: bool,
}

impl Check {
    pub(super) fn run(&self) -> ExitCode {
        let text = match self.read() {
            Ok(text) => text,
            Err(error) => {
                eprintln!("ottla: {}: {error}", self.file.display());
                return ExitCode::from(EXIT_UNREADABLE);
            }
        };
        let overrides: Vec<(String, String)> = self
            .overrides
            .iter()
            .filter_map(|text| text.split_once('='))
            .map(|(key, value)| (key.trim().to_string(), value.trim().to_string()))
            .collect();
        let findings = explain(&text, &overrides);
        let page = match self.json {
            true => as_json(&self.file.display().to_string(), &findings),
            false => as_text(&self.file.display().to_string(), &findings),
        };
        // Whoever reads it may have gone.
        let _ = std::io::stdout().write_all(page.as_bytes());
        let worst = findings.iter().map(|finding| finding.severity).max();
        let bearable = if self.strict {
            Severity::Note
        } else {
            Severity::Warning
        };
        match worst.is_none_or(|worst| worst <= bearable) {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        }
    }

    fn read(&self) -> std::io::Result<String> {
        let mut bytes = Vec::new();
        match self.file.as_os_str() == "-" {
            true => std::io::stdin().read_to_end(&mut bytes)?,
            false => std::fs::File::open(&self.file)?.read_to_end(&mut bytes)?,
        };
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    }
}

fn count(findings: &[Finding], severity: Severity) -> usize {
    let findings = findings.iter();
    findings
        .filter(|finding| finding.severity == severity)
        .count()
}

/// `FILE:LINE: error: key=value: message; fix`, and a sum.
fn as_text(file: &str, findings: &[Finding]) -> String {
    let mut page = String::new();
    for finding in findings {
        let place = match finding.line {
            Some(line) => format!("{file}:{line}"),
            None => file.to_string(),
        };
        let Finding {
            key,
            value,
            message,
            fix,
            severity,
            kind,
            ..
        } = finding;
        let fix = if fix.is_empty() {
            String::new()
        } else {
            format!("; {fix}")
        };
        let (severity, kind) = (word(*severity), kind.word());
        page += &format!("{place}: {severity} ({kind}): {key}={value}: {message}{fix}\n");
    }
    let [errors, warnings, notes] =
        [Severity::Error, Severity::Warning, Severity::Note].map(|one| count(findings, one));
    page + &format!("{file}: {errors} errors, {warnings} warnings, {notes} notes\n")
}

fn as_json(file: &str, findings: &[Finding]) -> String {
    let listed: Vec<_> = findings
        .iter()
        .map(|finding| {
            json!({
                "line": finding.line,
                "key": finding.key,
                "value": finding.value,
                "severity": word(finding.severity),
                "kind": finding.kind.word(),
                "message": finding.message,
                "fix": finding.fix,
            })
        })
        .collect();
    let page = json!({
        "file": file,
        "errors": count(findings, Severity::Error),
        "warnings": count(findings, Severity::Warning),
        "findings": listed,
    });
    format!("{page:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, arguments: &[&str]) -> ExitCode {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("server.properties");
        std::fs::write(&file, text).unwrap();
        Check {
            file,
            overrides: Vec::new(),
            json: arguments.contains(&"--json"),
            strict: arguments.contains(&"--strict"),
        }
        .run()
    }

    fn same(one: ExitCode, other: ExitCode) -> bool {
        format!("{one:?}") == format!("{other:?}")
    }

    #[test]
    fn the_exit_status_tells_how_bad_it_is() {
        assert!(same(check("num.partitions=3\n", &[]), ExitCode::SUCCESS));
        assert!(same(
            check("num.partition=3\n", &["--json"]),
            ExitCode::SUCCESS
        ));
        assert!(same(
            check("num.partition=3\n", &["--strict"]),
            ExitCode::FAILURE
        ));
        assert!(same(check("num.partitions=x\n", &[]), ExitCode::FAILURE));
        assert!(same(
            check("process.roles=broker,controller\n", &["--strict"]),
            ExitCode::SUCCESS
        ));
        let missing = Check {
            file: PathBuf::from("/nonexistent/server.properties"),
            overrides: Vec::new(),
            json: false,
            strict: false,
        };
        assert!(same(missing.run(), ExitCode::from(EXIT_UNREADABLE)));
    }

    #[test]
    fn findings_are_lines_for_people_and_objects_for_programs() {
        let findings = explain("num.partition=3\nnum.partitions=x\n", &[]);
        let text = as_text("f", &findings);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "f:1: warning (unknown): num.partition=3: nobody knows this key: it has no effect; is \
             num.partitions meant?"
        );
        assert!(
            lines[1].starts_with("f:2: error (wrong): num.partitions=x: "),
            "{text}"
        );
        assert_eq!(lines[2], "f: 1 errors, 1 warnings, 0 notes");
        let page: serde_json::Value = serde_json::from_str(&as_json("f", &findings)).unwrap();
        assert_eq!((&page["errors"], &page["warnings"]), (&json!(1), &json!(1)));
        assert_eq!(page["findings"][1]["line"], 2);
        assert_eq!(page["findings"][0]["fix"], "is num.partitions meant?");
    }
}
