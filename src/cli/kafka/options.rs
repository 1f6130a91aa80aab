//! Options as Kafka's tools take them (joptsimple without abbreviations): `--name value`, `--name=value`, `-name`,
//! repeated ones; what is not an option is passed over.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::str::FromStr;

use super::Failure;

/// Whether an option has an argument, and what that is called in the help text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Argument {
    None,
    Required(&'static str),
    Optional(&'static str),
}

/// One option of a tool.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OptionSpec {
    pub(crate) name: &'static str,
    pub(crate) argument: Argument,
    pub(crate) help: &'static str,
}

/// An option without an argument.
pub(crate) const fn flag(name: &'static str, help: &'static str) -> OptionSpec {
    OptionSpec {
        name,
        argument: Argument::None,
        help,
    }
}

/// An option with one.
pub(crate) const fn value(
    name: &'static str,
    described: &'static str,
    help: &'static str,
) -> OptionSpec {
    OptionSpec {
        name,
        argument: Argument::Required(described),
        help,
    }
}

/// An option that may have one.
pub(crate) const fn optional(
    name: &'static str,
    described: &'static str,
    help: &'static str,
) -> OptionSpec {
    OptionSpec {
        name,
        argument: Argument::Optional(described),
        help,
    }
}

/// What stands on a command line.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    specs: &'static [OptionSpec],
    given: BTreeMap<&'static str, Vec<Option<String>>>,
    pub(crate) rest: Vec<String>,
    pub(crate) is_empty: bool,
}

/// Behind which column help texts stand, and where they end.
const HELP_COLUMN: usize = 41;
const HELP_WIDTH: usize = 80;

impl Options {
    /// Reads a command line. The message of a failure is joptsimple's.
    pub(crate) fn parse(
        specs: &'static [OptionSpec],
        arguments: &[String],
    ) -> Result<Self, String> {
        let mut options = Self {
            specs,
            given: BTreeMap::new(),
            rest: Vec::new(),
            is_empty: arguments.is_empty(),
        };
        let mut left = arguments.iter().peekable();
        while let Some(token) = left.next() {
            let name = token.strip_prefix("--").or_else(|| token.strip_prefix('-'));
            let Some(name) = name.filter(|name| !name.is_empty()) else {
                match token.as_str() {
                    "--" => options.rest.extend(left.by_ref().cloned()),
                    _ => options.rest.push(token.clone()),
                }
                continue;
            };
            let (name, inline) = match name.split_once('=') {
                Some((name, inline)) => (name, Some(inline.to_owned())),
                None => (name, None),
            };
            let Some(spec) = specs.iter().find(|spec| spec.name == name) else {
                let is_long = token.starts_with("--");
                let unknown = match is_long {
                    true => name.to_owned(),
                    false => name.chars().take(1).collect(),
                };
                return Err(format!("{unknown} is not a recognized option"));
            };
            let argument = match (spec.argument, inline) {
                (Argument::None, None) => None,
                (Argument::None, Some(_)) => {
                    return Err(format!("Option {} doesn't take an argument", spec.name));
                }
                (_, Some(inline)) => Some(inline),
                (Argument::Required(_), None) => match left.next() {
                    Some(argument) => Some(argument.clone()),
                    None => return Err(format!("Option {} requires an argument", spec.name)),
                },
                (Argument::Optional(_), None) => left
                    .next_if(|next| !next.starts_with('-') || next.as_str() == "-")
                    .cloned(),
            };
            options.given.entry(spec.name).or_default().push(argument);
        }
        Ok(options)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        debug_assert!(self.specs.iter().any(|spec| spec.name == name), "{name}");
        self.given.contains_key(name)
    }

    /// The argument of an option that may be given once.
    pub(crate) fn value(&self, name: &str) -> Result<Option<&str>, String> {
        debug_assert!(self.specs.iter().any(|spec| spec.name == name), "{name}");
        match self.given.get(name).map(Vec::as_slice) {
            None => Ok(None),
            Some([one]) => Ok(one.as_deref()),
            Some(_) => Err(format!(
                "Found multiple arguments for option {name}, but you asked for only one"
            )),
        }
    }

    /// The arguments of an option that may be given many times.
    pub(crate) fn values(&self, name: &str) -> Vec<&str> {
        let given = self.given.get(name).into_iter().flatten();
        given.filter_map(Option::as_deref).collect()
    }

    /// The argument as a number.
    pub(crate) fn number<T: FromStr>(&self, name: &str) -> Result<Option<T>, String> {
        let Some(text) = self.value(name)? else {
            return Ok(None);
        };
        let number = text.parse();
        number
            .map(Some)
            .map_err(|_| format!("Cannot parse argument '{text}' of option {name}"))
    }

    /// Fails with Kafka's words if one of the others is given beside `used`.
    pub(crate) fn check_invalid(&self, used: &str, others: &[&str]) -> Result<(), Failure> {
        let conflicting = others
            .iter()
            .find(|other| self.has(used) && self.has(other));
        match conflicting {
            Some(other) => Err(self.usage(format!(
                "Option \"{}\" can't be used with option \"{}\"",
                bracketed(used),
                bracketed(other)
            ))),
            None => Ok(()),
        }
    }

    /// Fails with Kafka's words if one of these is not given.
    pub(crate) fn check_required(&self, required: &[&str]) -> Result<(), Failure> {
        match required.iter().find(|name| !self.has(name)) {
            Some(name) => {
                Err(self.usage(format!("Missing required argument \"{}\"", bracketed(name))))
            }
            None => Ok(()),
        }
    }

    /// A failure with the help text behind its message.
    pub(crate) fn usage(&self, message: impl Into<String>) -> Failure {
        usage(self.specs, message)
    }

    /// `--help` and `--version`, before anything else is looked at.
    pub(crate) fn help_or_version(&self, about: &str) -> Result<(), Failure> {
        if self.given.contains_key("help") {
            return Err(self.usage(about));
        }
        match self.given.contains_key("version") {
            true => Err(Failure::Done(format!("{}\n", version()))),
            false => Ok(()),
        }
    }
}

/// A failure with a help text behind its message.
pub(crate) fn usage(specs: &[OptionSpec], message: impl Into<String>) -> Failure {
    Failure::Usage(format!("{}\n{}", message.into(), help(specs)))
}

/// As Kafka prints an option in its messages.
pub(crate) fn bracketed(name: &str) -> String {
    format!("[{name}]")
}

/// The exception that joptsimple throws, by what it says.
pub(crate) fn exception(message: &str) -> String {
    let name = match message {
        text if text.ends_with("is not a recognized option") => "UnrecognizedOptionException",
        text if text.ends_with("requires an argument") => "OptionMissingRequiredArgumentException",
        text if text.starts_with("Cannot parse") => "OptionArgumentConversionException",
        text if text.starts_with("Found multiple") => "MultipleArgumentsForOptionException",
        text if text.contains("are unavailable") => "UnavailableOptionException",
        _ => "OptionException",
    };
    format!("joptsimple.{name}: {message}")
}

/// The message, then the exception as in a stack trace.
pub(crate) fn terse(message: String) -> Failure {
    let exception = exception(&message);
    Failure::Message(format!("{message}\n{exception}"))
}

/// What `--version` prints: scripts read the release of Kafka that is spoken.
pub(crate) fn version() -> String {
    format!("4.4.0 (Ottla {})", env!("CARGO_PKG_VERSION"))
}

fn help(specs: &[OptionSpec]) -> String {
    let mut sorted: Vec<&OptionSpec> = specs.iter().collect();
    sorted.sort_unstable_by_key(|spec| spec.name);
    let mut text = format!(
        "{:HELP_COLUMN$}{}\n{:HELP_COLUMN$}{}\n",
        "Option", "Description", "------", "-----------"
    );
    for spec in sorted {
        let left = match spec.argument {
            Argument::None => format!("--{}", spec.name),
            Argument::Required(described) => format!("--{} <String: {described}>", spec.name),
            Argument::Optional(described) => format!("--{} [String: {described}]", spec.name),
        };
        let left = wrapped(&left, HELP_COLUMN - 1, "  ");
        let right = wrapped(spec.help, HELP_WIDTH - HELP_COLUMN, "  ");
        for index in 0..left.len().max(right.len()) {
            let left = left.get(index).map_or("", String::as_str);
            let right = right.get(index).map_or("", String::as_str);
            let line = format!("{left:HELP_COLUMN$}{right}");
            let _ = writeln!(text, "{}", line.trim_end());
        }
    }
    text
}

fn wrapped(text: &str, width: usize, indent: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) => lines.push(format!("{indent}{word}")),
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPECS: &[OptionSpec] = &[
        flag("list", "Lists."),
        value("topic", "topic", "Names one."),
        optional("state", "state", "Of a state."),
    ];

    fn parse(line: &str) -> Result<Options, String> {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Options::parse(SPECS, &arguments)
    }

    #[test]
    fn options_are_read_as_joptsimple_reads_them() {
        let options = parse("--topic a --list x --topic=b=c -list --state").unwrap();
        assert_eq!(options.values("topic"), ["a", "b=c"]);
        assert!(options.has("list") && options.has("state"));
        assert_eq!(options.rest, ["x"]);
        assert_eq!(options.value("state"), Ok(None));
        assert!(options.value("topic").is_err());
        assert_eq!(parse("--state s").unwrap().value("state"), Ok(Some("s")));
        let beside = parse("--state --list").unwrap();
        assert!(beside.has("list") && beside.value("state") == Ok(None));
        assert_eq!(
            parse("--topic --list").unwrap().value("topic"),
            Ok(Some("--list"))
        );
    }

    #[test]
    fn mistakes_are_told_as_joptsimple_tells_them() {
        let error = |line| parse(line).unwrap_err();
        assert_eq!(error("--top x"), "top is not a recognized option");
        assert_eq!(error("--topic"), "Option topic requires an argument");
        let options = parse("--topic x").unwrap();
        assert_eq!(
            options.number::<i32>("topic").unwrap_err(),
            "Cannot parse argument 'x' of option topic"
        );
        let Failure::Usage(text) = options.usage("No.") else {
            panic!("another failure");
        };
        assert!(text.starts_with("No.\nOption   "), "{text}");
        assert!(text.contains("--topic <String: topic>"));
    }
}
