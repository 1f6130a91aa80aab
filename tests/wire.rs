//! Every API over a raw socket, byte by byte: `wire/<Api>.txt` holds requests of its lowest and its
//! highest version with their answers, failing ones among them.
//!
//! Each file is played in order on a broker of its own. What stands behind `#` is comment; blanks
//! mean nothing. A run of lines beginning with `>` is a request frame, the lines beginning with `<`
//! behind it are its answer:
//!
//! * `00ff`: these bytes; `..`: any byte; `!002a`: these two bytes, an error code (not zero);
//! * `<string>`, `<compact>`: a string that is not empty, behind two bytes of length or a varint;
//! * `<name:16>`: any 16 bytes, kept as `name`; `{name}`: those bytes, in requests too;
//! * `< closed`: the broker closes the connection; what follows is sent on a new one;
//! * `>?` instead of `>`: sent again until the answer is the one that is written down.
//!
//! The frames are those of `compat-tests/differential/ask --hex`. The answers are Apache Kafka's; a
//! comment names Kafka's value where this broker has another on purpose.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // helpers of tests

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use ottla::handlers::APIS;
use support::{Client, Ottla, PATIENCE};

/// Brokers that run at the same time.
const BROKERS: usize = 4;
const RETRY: Duration = Duration::from_millis(20);

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Byte(u8),
    Any,
    Error([u8; 2]),
    /// A string that is not empty; true: its length is a varint of one more.
    Text(bool),
    Capture(String, usize),
    Insert(String),
}

/// A request and what must come back; no tokens: the connection is closed.
#[derive(Debug)]
struct Exchange {
    line: usize,
    retry: bool,
    request: Vec<Token>,
    answer: Option<Vec<Token>>,
    /// The line of each token of the answer.
    lines: Vec<usize>,
}

impl Exchange {
    /// API key and version, out of the request's header.
    fn key(&self) -> (i16, i16) {
        let bytes: Vec<u8> = self.request[4..8]
            .iter()
            .map(|token| match token {
                Token::Byte(byte) => *byte,
                other => panic!("line {}: {other:?} in the header", self.line),
            })
            .collect();
        let field = |at: usize| i16::from_be_bytes([bytes[at], bytes[at + 1]]);
        (field(0), field(2))
    }

    fn fails(&self) -> bool {
        let error = |token: &Token| matches!(token, Token::Error(_));
        self.answer
            .as_ref()
            .is_none_or(|answer| answer.iter().any(error))
    }
}

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/wire")
}

fn tokens(mut text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    loop {
        text = text.trim_start();
        let Some(first) = text.chars().next() else {
            return Ok(tokens);
        };
        let (token, rest) = match first {
            '<' => {
                let (inside, rest) = text[1..].split_once('>').ok_or("no >")?;
                (placeholder(inside)?, rest)
            }
            '{' => {
                let (name, rest) = text[1..].split_once('}').ok_or("no }")?;
                (Token::Insert(name.to_owned()), rest)
            }
            '!' => {
                let code = [byte(&text[1..])?, byte(text.get(3..).unwrap_or_default())?];
                if code == [0, 0] {
                    return Err("!0000 is no error".to_owned());
                }
                (Token::Error(code), &text[5..])
            }
            '.' if text.starts_with("..") => (Token::Any, &text[2..]),
            _ => (Token::Byte(byte(text)?), &text[2..]),
        };
        tokens.push(token);
        text = rest;
    }
}

fn placeholder(inside: &str) -> Result<Token, String> {
    match (inside, inside.split_once(':')) {
        ("string", _) => Ok(Token::Text(false)),
        ("compact", _) => Ok(Token::Text(true)),
        (_, Some((name, size))) => {
            let size = size.parse().map_err(|_| format!("no size: {size}"))?;
            Ok(Token::Capture(name.to_owned(), size))
        }
        _ => Err(format!("<{inside}>")),
    }
}

fn byte(text: &str) -> Result<u8, String> {
    text.get(..2)
        .and_then(|digits| u8::from_str_radix(digits, 16).ok())
        .ok_or_else(|| format!("no byte: {text}"))
}

fn parse(text: &str) -> Result<Vec<Exchange>, String> {
    let mut exchanges: Vec<Exchange> = Vec::new();
    let mut answered = true;
    for (index, line) in text.lines().enumerate() {
        let at = |problem: String| format!("line {}: {problem}", index + 1);
        let code = line.split('#').next().unwrap_or_default().trim();
        if let Some(code) = code.strip_prefix('>') {
            let retry = code.starts_with('?');
            if answered {
                exchanges.push(Exchange {
                    line: index + 1,
                    retry,
                    request: Vec::new(),
                    answer: None,
                    lines: Vec::new(),
                });
                answered = false;
            }
            let code = code.trim_start_matches('?');
            let current = exchanges.last_mut().unwrap();
            current.request.extend(tokens(code).map_err(at)?);
        } else if let Some(code) = code.strip_prefix('<') {
            let current = exchanges.last_mut().ok_or(at("no request".to_owned()))?;
            if code.trim() != "closed" {
                let answer = current.answer.get_or_insert_default();
                answer.extend(tokens(code).map_err(at)?);
                current.lines.resize(answer.len(), index + 1);
            }
            answered = true;
        } else if !code.is_empty() {
            return Err(at(format!("begins with neither > nor <: {code}")));
        }
    }
    if answered {
        Ok(exchanges)
    } else {
        Err("the last request has no answer".to_owned())
    }
}

type Variables = BTreeMap<String, Vec<u8>>;

fn variable<'a>(variables: &'a Variables, name: &str) -> Result<&'a [u8], String> {
    let value = variables.get(name).map(Vec::as_slice);
    value.ok_or_else(|| format!("nothing was kept as {name}"))
}

fn request(tokens: &[Token], variables: &Variables) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    for token in tokens {
        match token {
            Token::Byte(byte) => bytes.push(*byte),
            Token::Insert(name) => bytes.extend(variable(variables, name)?),
            other => return Err(format!("{other:?} in a request")),
        }
    }
    Ok(bytes)
}

/// How many bytes of `rest` are the token's; `None` if they are not as it says.
fn matched(token: &Token, rest: &[u8], variables: &mut Variables) -> Result<Option<usize>, String> {
    let literal = |bytes: &[u8]| rest.starts_with(bytes).then_some(bytes.len());
    Ok(match token {
        Token::Byte(byte) => literal(&[*byte]),
        Token::Error(code) => literal(code),
        Token::Insert(name) => literal(variable(variables, name)?),
        Token::Any => (!rest.is_empty()).then_some(1),
        Token::Capture(name, size) => rest.get(..*size).map(|value| {
            variables.insert(name.clone(), value.to_vec());
            *size
        }),
        Token::Text(false) => rest
            .get(..2)
            .map(|prefix| usize::from(u16::from_be_bytes([prefix[0], prefix[1]])))
            .filter(|&length| length > 0 && 2 + length <= rest.len())
            .map(|length| 2 + length),
        Token::Text(true) => compact(rest),
    })
}

/// The size of a compact string that is not empty, with its length.
fn compact(rest: &[u8]) -> Option<usize> {
    let mut length = 0;
    for (index, byte) in rest.iter().take(3).enumerate() {
        length |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            let end = index + length; // the length is one more than there are bytes
            return (length > 1 && end <= rest.len()).then_some(end);
        }
    }
    None
}

/// Fails with the line and the bytes of the first difference.
fn compare(
    expected: &[Token],
    lines: &[usize],
    got: &[u8],
    variables: &mut Variables,
) -> Result<(), String> {
    let mut at = 0;
    for (index, token) in expected.iter().enumerate() {
        match matched(token, &got[at..], variables)? {
            Some(size) => at += size,
            None => {
                let wanted = written(&expected[index..]);
                let wanted = wanted.get(..80).unwrap_or(&wanted);
                return Err(format!(
                    "line {}: differs from byte {at} on\n  expected {wanted}\n       got {}\n whole answer {}",
                    lines[index],
                    hex(&got[at..got.len().min(at + 40)]),
                    hex(got)
                ));
            }
        }
    }
    if at == got.len() {
        Ok(())
    } else {
        Err(format!("bytes are left: {}", hex(&got[at..])))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// Tokens as the files have them.
fn written(tokens: &[Token]) -> String {
    tokens
        .iter()
        .map(|token| match token {
            Token::Byte(byte) => hex(&[*byte]),
            Token::Any => "..".to_owned(),
            Token::Error(code) => format!("!{}", hex(code)),
            Token::Text(compact) => if *compact { "<compact>" } else { "<string>" }.to_owned(),
            Token::Capture(name, size) => format!("<{name}:{size}>"),
            Token::Insert(name) => format!("{{{name}}}"),
        })
        .collect()
}

fn play(exchanges: &[Exchange]) -> Result<(), String> {
    let broker = Ottla::start(&[
        "group.initial.rebalance.delay.ms=0",
        "log.segment.delete.delay.ms=60000", // Kafka's default, which CreateTopics answers with
    ]);
    let mut client = broker.connect();
    let mut variables = Variables::new();
    for exchange in exchanges {
        exchange_with(&broker, &mut client, exchange, &mut variables)
            .map_err(|problem| format!("request of line {}: {problem}", exchange.line))?;
    }
    Ok(())
}

fn exchange_with(
    broker: &Ottla,
    client: &mut Client,
    exchange: &Exchange,
    variables: &mut Variables,
) -> Result<(), String> {
    let mut waited = Duration::ZERO;
    loop {
        client.send_raw(&request(&exchange.request, variables)?);
        let result = match (client.receive(), &exchange.answer) {
            (None, None) => {
                *client = broker.connect();
                return Ok(());
            }
            (None, Some(_)) => return Err("the broker closed the connection".to_owned()),
            (Some(body), None) => {
                return Err(format!("answered instead of closed: {}", hex(&body)));
            }
            (Some(body), Some(expected)) => {
                let size = u32::try_from(body.len()).unwrap();
                let got = [&size.to_be_bytes()[..], &body].concat();
                compare(expected, &exchange.lines, &got, variables)
            }
        };
        if result.is_ok() || !exchange.retry || waited > PATIENCE {
            return result;
        }
        std::thread::sleep(RETRY);
        waited += RETRY;
    }
}

fn load(name: &str) -> Result<Vec<Exchange>, String> {
    let path = directory().join(format!("{name}.txt"));
    let text = std::fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))?;
    parse(&text).map_err(|problem| format!("{name}.txt, {problem}"))
}

#[test]
fn every_api_answers_byte_for_byte() {
    let names = Mutex::new(APIS.iter().map(|api| format!("{:?}", api.key)));
    let problems = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..BROKERS {
            scope.spawn(|| {
                loop {
                    let Some(name) = names.lock().unwrap().next() else {
                        return;
                    };
                    let played = load(&name).and_then(|exchanges| {
                        play(&exchanges).map_err(|problem| format!("{name}.txt, {problem}"))
                    });
                    problems.lock().unwrap().extend(played.err());
                }
            });
        }
    });
    let problems = problems.into_inner().unwrap();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// An API without these fails here: a request that succeeds and one that fails, of its lowest and
/// of its highest version. Failing is an error code, or, where a version has none, the connection's
/// end.
#[test]
fn every_api_has_its_versions_and_a_failure() {
    let mut files: BTreeSet<String> = std::fs::read_dir(directory())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let mut problems = Vec::new();
    for api in APIS {
        let name = format!("{:?}", api.key);
        files.remove(&format!("{name}.txt"));
        let exchanges = match load(&name) {
            Ok(exchanges) => exchanges,
            Err(problem) => {
                problems.push(problem);
                continue;
            }
        };
        for version in [api.min_version, api.max_version] {
            for fails in [false, true] {
                let there =
                    |one: &Exchange| one.key() == (api.key as i16, version) && one.fails() == fails;
                if !exchanges.iter().any(there) {
                    let kind = if fails { "fails" } else { "succeeds" };
                    problems.push(format!("{name}.txt: no request v{version} that {kind}"));
                }
            }
        }
    }
    problems.extend(files.iter().map(|file| format!("{file}: no such API")));
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn the_notation_is_read_and_compared() {
    let exchanges =
        parse("# c\n>? 0001 {a} # x\n< 00000001 ..!0003<string>\n< <b:2>\n> 00\n< closed");
    let exchanges = exchanges.unwrap();
    assert_eq!(exchanges.len(), 2);
    assert!(exchanges[0].retry && exchanges[0].fails() && exchanges[1].fails());
    let expected = exchanges[0].answer.as_ref().unwrap();
    let lines = &exchanges[0].lines;
    assert_eq!(lines[..], [3, 3, 3, 3, 3, 3, 3, 4]);
    let mut kept = Variables::from([("a".to_owned(), vec![7])]);
    assert_eq!(request(&exchanges[0].request, &kept), Ok(vec![0, 1, 7]));
    let got = support::hex("00000001 ff 0003 000161 0809");
    assert_eq!(compare(expected, lines, &got, &mut kept), Ok(()));
    assert_eq!(kept["b"], [8, 9]);
    for wrong in [
        "00000001 ff 0004 000161 0809",
        "00000001 ff 0003 0000 0809",
        "00000001 ff 0003 000161 08",
        "00000001 ff 0003 000161 080900",
    ] {
        assert!(
            compare(expected, lines, &support::hex(wrong), &mut kept).is_err(),
            "{wrong}"
        );
    }
    assert_eq!(compact(&support::hex("0361620000")), Some(3));
    assert_eq!(compact(&support::hex("01")), None);
    assert!(parse("> 0g\n< 00").is_err() && parse("> 00").is_err() && parse("x").is_err());
    assert!(tokens("!0000").is_err());
}
