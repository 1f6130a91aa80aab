//! The house rules that a compiler does not check: which module may use which, what pure files must
//! not mention, who may name the codec and the etcd client, how long a file may be.
// What is not as expected ends the run; time is real here.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::fs;
use std::path::{Path, PathBuf};

/// Lower layers first. A module may use itself and the modules named here, nothing else.
/// Think hard before changing this table: it is the architecture.
const LAYERS: &[(&str, &str)] = &[
    ("types", ""),
    ("time", "types"),
    ("config", "types"),
    ("telemetry", "types time config"),
    ("record", "types config"),
    ("protocol", "types"),
    ("security", "types config"),
    ("registry", "types time config telemetry"),
    ("metadata", "types time config telemetry security registry"),
    ("log", "types time config telemetry record"),
    ("net", "types time config telemetry protocol security"),
    (
        "replication",
        "types time config telemetry record protocol registry metadata log net",
    ),
    (
        "coordinator",
        "types time config telemetry record protocol metadata net replication",
    ),
    (
        "controller",
        "types time config telemetry registry metadata",
    ),
    ("client", "types time config record protocol net"),
    (
        "handlers",
        "types time config telemetry record protocol security metadata replication coordinator \
         controller",
    ),
    (
        "broker",
        "types time config telemetry record protocol security registry metadata log net \
         replication coordinator controller handlers",
    ),
    ("cli", "types time config record registry broker log client"),
];

/// Files and folders that decide and never act: time and input come in as arguments, what should be
/// done goes out.
const PURE: &[&str] = &[
    "types/",
    "time/deadlines.rs",
    "record/",
    "protocol/fetch.rs",
    "protocol/fetch/",
    "protocol/frame.rs",
    "protocol/guard.rs",
    "protocol/guard/",
    "protocol/list_offsets.rs",
    "protocol/produce.rs",
    "protocol/request.rs",
    "protocol/topic.rs",
    "protocol/wire.rs",
    "metadata/delta.rs",
    "metadata/image.rs",
    "metadata/resolver.rs",
    "controller/election.rs",
    "replication/leave.rs",
    "controller/machine.rs",
    "controller/placement.rs",
    "controller/admin/plan",
    "client/apis.rs",
    "client/errors.rs",
    "client/partitioner.rs",
    "client/assignor.rs",
    "registry/key.rs",
    "registry/value.rs",
    "registry/embedded/history.rs",
    "security/operations.rs",
    "coordinator/group/",
    "coordinator/loader.rs",
    "coordinator/record.rs",
    "replication/isr.rs",
    "replication/fetcher/machine.rs",
    "replication/fetcher/session.rs",
    "replication/fetcher/assignment.rs",
    "replication/watermark.rs",
    "replication/waiters.rs",
    "replication/fetch_session.rs",
    "log/checked.rs",
    "log/checkpoint.rs",
    "log/index.rs",
    "log/leader_epochs.rs",
    "log/manifest.rs",
    "log/names.rs",
    "log/producer_state.rs",
    "log/retention.rs",
];

/// What pure code must not mention. `HashMap` is here because its order is random.
const IMPURE: &[&str] = &[
    "tokio::",
    "std::fs",
    "std::net",
    "std::thread",
    "async fn",
    ".await",
    "Instant::now",
    "SystemTime::now",
    "rand::",
    "metrics::",
    "tracing::",
    "Mutex",
    "RwLock",
    "Atomic",
    "HashMap",
];

/// Crates that only some modules may name.
const FENCED: &[(&str, &[&str])] = &[
    (
        "kafka_protocol",
        &["protocol/", "handlers/", "net/", "client/"],
    ),
    ("etcd_client", &["registry/etcd"]),
    ("redb", &["registry/embedded"]),
    ("clap", &["cli", "main.rs"]),
    (
        "anyhow",
        &["main.rs", "cli", "broker", "protocol/response.rs"],
    ),
];

/// Lines of a file, tests left out.
const LINES_MAX: usize = 800;

struct Source {
    /// Relative to `src/`.
    path: String,
    /// Numbered lines, without comments and `mod tests`.
    code: Vec<(usize, String)>,
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    collect(&root, &mut files);
    files.sort();
    let sources = files.into_iter().map(|file| {
        let path = file
            .strip_prefix(&root)
            .unwrap()
            .to_string_lossy()
            .into_owned();
        Source {
            code: code_of(&fs::read_to_string(&file).unwrap()),
            path,
        }
    });
    sources
        .filter(|source| !source.path.ends_with("tests.rs"))
        .collect()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("tests") {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

fn code_of(text: &str) -> Vec<(usize, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let is_test_module = |pair: &[&str]| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod ");
    let end = lines
        .windows(2)
        .position(is_test_module)
        .unwrap_or(lines.len());
    let without_comment = |line: &str| line.split("//").next().unwrap_or("").to_owned();
    lines[..end]
        .iter()
        .enumerate()
        .map(|(index, line)| (index + 1, without_comment(line)))
        .collect()
}

/// The modules of this crate that the code names: `crate::a`, `crate::{a, b::c}`.
fn crate_uses(source: &Source) -> Vec<(usize, String)> {
    let mut uses = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (number, line) in &source.code {
        if let Some((_, names)) = &mut open {
            names.push_str(line);
        } else if let Some(start) = line.find("crate::{") {
            open = Some((*number, line[start + "crate::{".len()..].to_owned()));
        } else {
            uses.extend(
                line.split("crate::")
                    .skip(1)
                    .map(|part| (*number, identifier(part))),
            );
        }
        if open.as_ref().is_some_and(|(_, names)| depth(names) < 0) {
            let (number, names) = open.take().unwrap();
            uses.extend(
                top_level_names(&names)
                    .into_iter()
                    .map(|name| (number, name)),
            );
        }
    }
    uses
}

fn identifier(text: &str) -> String {
    text.chars()
        .take_while(|c| c.is_alphanumeric() || *c == '_')
        .collect()
}

fn depth(names: &str) -> i32 {
    let step = |c| i32::from(c == '{') - i32::from(c == '}');
    names.chars().map(step).sum()
}

fn top_level_names(names: &str) -> Vec<String> {
    let mut level = 0;
    let mut found = vec![String::new()];
    for character in names.chars() {
        match character {
            '{' => level += 1,
            '}' if level == 0 => break,
            '}' => level -= 1,
            ',' if level == 0 => found.push(String::new()),
            other if level == 0 => found.last_mut().unwrap().push(other),
            _ => {}
        }
    }
    found
        .iter()
        .map(|name| identifier(name.trim()))
        .filter(|name| !name.is_empty())
        .collect()
}

fn layer_errors(sources: &[Source]) -> Vec<String> {
    let mut errors = Vec::new();
    for source in sources {
        let module = source
            .path
            .split('/')
            .next()
            .unwrap()
            .trim_end_matches(".rs");
        if matches!(module, "lib" | "main") {
            continue;
        }
        let Some((_, allowed)) = LAYERS.iter().find(|(name, _)| *name == module) else {
            errors.push(format!(
                "src/{}: module `{module}` is not in LAYERS",
                source.path
            ));
            continue;
        };
        for (line, used) in crate_uses(source) {
            if used != module && !allowed.split(' ').any(|name| name == used) {
                errors.push(format!(
                    "src/{}:{line}: `{module}` must not use `{used}`",
                    source.path
                ));
            }
        }
    }
    errors
}

fn purity_errors(sources: &[Source]) -> Vec<String> {
    let mut errors = Vec::new();
    for source in sources
        .iter()
        .filter(|s| PURE.iter().any(|pure| s.path.starts_with(pure)))
    {
        for (line, code) in &source.code {
            for word in IMPURE.iter().filter(|word| code.contains(**word)) {
                errors.push(format!("src/{}:{line}: `{word}` in pure code", source.path));
            }
        }
    }
    errors
}

fn report(errors: &[String]) {
    assert!(errors.is_empty(), "\n{}", errors.join("\n"));
}

#[test]
fn layers_point_downwards() {
    report(&layer_errors(&sources()));
}

#[test]
fn layers_are_listed_bottom_up() {
    for (index, (name, allowed)) in LAYERS.iter().enumerate() {
        for dependency in allowed.split(' ').filter(|name| !name.is_empty()) {
            let below = LAYERS[..index]
                .iter()
                .any(|(lower, _)| *lower == dependency);
            assert!(
                below,
                "`{name}` uses `{dependency}`, which is not listed below it"
            );
        }
    }
}

#[test]
fn pure_files_stay_pure() {
    let sources = sources();
    for pure in PURE {
        let exists = sources.iter().any(|source| source.path.starts_with(pure));
        assert!(exists, "PURE names `{pure}`, which is not there");
    }
    report(&purity_errors(&sources));
}

#[test]
fn fenced_crates_stay_behind_their_fence() {
    let mut errors = Vec::new();
    for source in sources() {
        for (name, places) in FENCED {
            let inside = places.iter().any(|place| source.path.starts_with(place));
            let names_it = |code: &str| {
                code.contains(&format!("{name}::")) || code.contains(&format!("use {name}"))
            };
            let named = source.code.iter().find(|(_, code)| names_it(code));
            if let (false, Some((line, _))) = (inside, named) {
                errors.push(format!(
                    "src/{}:{line}: `{name}` is not for this file",
                    source.path
                ));
            }
        }
    }
    report(&errors);
}

#[test]
fn files_stay_short() {
    let long = sources()
        .into_iter()
        .filter(|source| source.code.len() > LINES_MAX);
    let line = |source: Source| format!("src/{}: {} lines", source.path, source.code.len());
    report(&long.map(line).collect::<Vec<_>>());
}

#[test]
fn no_drawer_for_odds_and_ends() {
    let drawers = ["utils", "util", "common", "helpers", "helper", "misc"];
    for source in sources() {
        for part in source.path.trim_end_matches(".rs").split('/') {
            assert!(
                !drawers.contains(&part),
                "src/{}: name it by what it is",
                source.path
            );
        }
    }
}

/// The positive control: the checks find what they are for.
#[test]
fn a_violation_is_found() {
    let source = |path: &str, text: &str| Source {
        path: path.into(),
        code: code_of(text),
    };
    let uses = "use crate::handlers::Context;\nuse crate::{\n    types::X,\n    net,\n};\n";
    let bad = [
        source("log/log.rs", uses),
        source("nowhere/mod.rs", ""),
        source(
            "types/id.rs",
            "fn now() { Instant::now() }\n// tokio:: in a comment\n",
        ),
    ];
    let layers = [
        "src/log/log.rs:1: `log` must not use `handlers`",
        "src/log/log.rs:2: `log` must not use `net`",
        "src/nowhere/mod.rs: module `nowhere` is not in LAYERS",
    ];
    assert_eq!(layer_errors(&bad), layers);
    assert_eq!(
        purity_errors(&bad),
        ["src/types/id.rs:1: `Instant::now` in pure code"]
    );
}
