//! Options as argparse4j has them, for the tools that have subcommands: `--name value`, `--name=value`, `-n value`.

use std::collections::BTreeMap;

use super::Failure;

/// One option: long name, short name, whether a value follows.
pub(super) struct Spec {
    pub(super) long: &'static str,
    pub(super) short: char,
    pub(super) takes_value: bool,
    pub(super) required: bool,
}

pub(super) const fn spec(long: &'static str, short: char, takes_value: bool) -> Spec {
    Spec {
        long,
        short,
        takes_value,
        required: false,
    }
}

pub(super) const fn required(long: &'static str, short: char) -> Spec {
    Spec {
        long,
        short,
        takes_value: true,
        required: true,
    }
}

/// A subcommand.
pub(super) struct Command {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) specs: &'static [Spec],
}

/// What was given.
#[derive(Debug)]
pub(super) struct Given {
    pub(super) command: &'static str,
    values: BTreeMap<&'static str, Vec<String>>,
}

impl Given {
    pub(super) fn has(&self, long: &str) -> bool {
        self.values.contains_key(long)
    }

    pub(super) fn value(&self, long: &str) -> Option<&str> {
        self.values.get(long)?.last().map(String::as_str)
    }
}

/// Reads the arguments of a tool with these subcommands.
pub(super) fn parse(
    tool: &str,
    about: &str,
    commands: &'static [Command],
    arguments: &[String],
) -> Result<Given, Failure> {
    let names: Vec<&str> = commands.iter().map(|command| command.name).collect();
    let usage = format!("usage: {tool} [-h] {{{}}} ...", names.join(","));
    let wrong = |what: String| Failure::Message(format!("{usage}\n{tool}: error: {what}"));
    let mut left = arguments.iter();
    let Some(first) = left.next() else {
        return Err(wrong("too few arguments".to_owned()));
    };
    if matches!(first.as_str(), "-h" | "--help") {
        let lines = commands
            .iter()
            .map(|command| format!("    {:20} {}\n", command.name, command.help));
        let lines: String = lines.collect();
        return Err(Failure::Done(format!(
            "{usage}\n\n{about}\n\npositional arguments:\n{lines}"
        )));
    }
    let Some(command) = commands.iter().find(|command| command.name == first) else {
        return Err(wrong(format!(
            "invalid choice: '{first}' (choose from '{}')",
            names.join("', '")
        )));
    };
    let usage = format!(
        "usage: {tool} {} [-h]{}",
        command.name,
        options(command.specs)
    );
    let mut given = Given {
        command: command.name,
        values: BTreeMap::new(),
    };
    let wrong = |what: String| Failure::Message(format!("{usage}\n{tool}: error: {what}"));
    while let Some(token) = left.next() {
        if matches!(token.as_str(), "-h" | "--help") {
            return Err(Failure::Done(format!("{usage}\n\n{}\n", command.help)));
        }
        let Some((spec, inline)) = matching(command.specs, token) else {
            return Err(wrong(format!("unrecognized arguments: '{token}'")));
        };
        let value = match (spec.takes_value, inline) {
            (false, _) => String::new(),
            (true, Some(inline)) => inline,
            (true, None) => match left.next() {
                Some(value) => value.clone(),
                None => {
                    return Err(wrong(format!(
                        "argument {}: expected one argument",
                        both(spec)
                    )));
                }
            },
        };
        given.values.entry(spec.long).or_default().push(value);
    }
    for spec in command.specs.iter().filter(|spec| spec.required) {
        if !given.has(spec.long) {
            return Err(wrong(format!("argument {} is required", both(spec))));
        }
    }
    Ok(given)
}

fn both(spec: &Spec) -> String {
    format!("--{}/-{}", spec.long, spec.short)
}

fn options(specs: &[Spec]) -> String {
    let option = |spec: &Spec| {
        let value = match spec.takes_value {
            true => format!(" {}", spec.long.to_uppercase().replace('-', "_")),
            false => String::new(),
        };
        match spec.required {
            true => format!(" --{}{value}", spec.long),
            false => format!(" [--{}{value}]", spec.long),
        }
    };
    specs.iter().map(option).collect()
}

fn matching<'a>(specs: &'a [Spec], token: &str) -> Option<(&'a Spec, Option<String>)> {
    if let Some(long) = token.strip_prefix("--") {
        let (name, inline) = match long.split_once('=') {
            Some((name, inline)) => (name, Some(inline.to_owned())),
            None => (long, None),
        };
        let spec = specs.iter().find(|spec| spec.long == name)?;
        return Some((spec, inline));
    }
    let short = token.strip_prefix('-')?;
    let first = short.chars().next()?;
    let spec = specs.iter().find(|spec| spec.short == first)?;
    let rest = &short[first.len_utf8()..];
    let inline = (!rest.is_empty()).then(|| rest.trim_start_matches('=').to_owned());
    Some((spec, inline))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMANDS: &[Command] = &[Command {
        name: "format",
        help: "Formats.",
        specs: &[
            required("config", 'c'),
            spec("ignore-formatted", 'g', false),
        ],
    }];

    fn parse_line(line: &str) -> Result<Given, Failure> {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse("kafka-storage", "About.", COMMANDS, &arguments)
    }

    #[test]
    fn options_of_a_subcommand() {
        for line in [
            "format -c f -g",
            "format --config=f --ignore-formatted",
            "format -cf -g",
        ] {
            let given = parse_line(line).unwrap();
            assert_eq!(given.command, "format");
            assert_eq!(given.value("config"), Some("f"));
            assert!(given.has("ignore-formatted"));
        }
        for line in ["", "forma", "format", "format -c", "format -c f -x"] {
            let Err(Failure::Message(text)) = parse_line(line) else {
                panic!("{line}");
            };
            assert!(text.contains("kafka-storage: error: "), "{text}");
        }
        assert!(matches!(parse_line("-h"), Err(Failure::Done(_))));
    }
}
