//! The text of a `server.properties`, as `java.util.Properties` reads it.

/// Reads `key=value` lines in their order; a key that comes twice comes twice here. Comments start
/// with `#` or `!`, a backslash at the end continues a line, `\t`, `\n`, `\uXXXX` and escaped
/// separators are understood. Never fails: whatever stands there is a key or a value.
pub fn parse(text: &str) -> Vec<(String, String)> {
    let entries = parse_lines(text).into_iter();
    entries.map(|(_, key, value)| (key, value)).collect()
}

/// The same with the number of the line, from 1, on which each begins.
pub fn parse_lines(text: &str) -> Vec<(usize, String, String)> {
    let mut entries = Vec::new();
    let mut lines = text.lines().zip(1..);
    while let Some((line, number)) = lines.next() {
        let line = line.trim_start_matches([' ', '\t', '\x0c']);
        if line.is_empty() || line.starts_with(['#', '!']) {
            continue;
        }
        let mut logical = line.to_string();
        while continues(&logical) {
            logical.pop();
            let Some((next, _)) = lines.next() else {
                break;
            };
            logical.push_str(next.trim_start_matches([' ', '\t', '\x0c']));
        }
        let (key, value) = split(&logical);
        let value = unescape(value).trim_end().to_string();
        entries.push((number, unescape(key), value));
    }
    entries
}

/// One line of such a file, with its line end; [`parse`] reads the same key and value from it, but
/// for white space around the value, which means nothing to Kafka.
pub fn line(key: &str, value: &str) -> String {
    let mut line = String::with_capacity(key.len() + value.len() + 2);
    for character in key.chars() {
        if matches!(character, '=' | ':' | ' ' | '#' | '!') {
            line.push('\\');
        }
        escape(character.encode_utf8(&mut [0; 4]), &mut line);
    }
    line.push('=');
    escape(value, &mut line);
    line.push('\n');
    line
}

fn escape(text: &str, line: &mut String) {
    for character in text.chars() {
        match character {
            '\\' => line.push_str("\\\\"),
            '\n' => line.push_str("\\n"),
            '\r' => line.push_str("\\r"),
            '\t' => line.push_str("\\t"),
            '\x0c' => line.push_str("\\f"),
            other => line.push(other),
        }
    }
}

/// An odd number of backslashes ends the line.
fn continues(line: &str) -> bool {
    line.bytes().rev().take_while(|&byte| byte == b'\\').count() % 2 == 1
}

/// Splits at the first separator that is not escaped: `=`, `:` or white space.
fn split(line: &str) -> (&str, &str) {
    let mut escaped = false;
    let end = line
        .char_indices()
        .find(|&(_, character)| {
            if escaped {
                escaped = false;
                return false;
            }
            escaped = character == '\\';
            matches!(character, '=' | ':' | ' ' | '\t' | '\x0c')
        })
        .map_or(line.len(), |(index, _)| index);
    let (key, rest) = line.split_at(end);
    let rest = rest.trim_start_matches([' ', '\t', '\x0c']);
    let value = rest.strip_prefix(['=', ':']).unwrap_or(rest);
    (key, value.trim_start_matches([' ', '\t', '\x0c']))
}

fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            plain.push(character);
            continue;
        }
        match characters.next() {
            Some('t') => plain.push('\t'),
            Some('n') => plain.push('\n'),
            Some('r') => plain.push('\r'),
            Some('f') => plain.push('\x0c'),
            Some('u') => {
                let digits: String = characters.by_ref().take(4).collect();
                let character = u32::from_str_radix(&digits, 16)
                    .ok()
                    .and_then(char::from_u32);
                plain.push(character.unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            Some(other) => plain.push(other),
            None => {}
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_java_reads() {
        let text = "# comment\n  ! another\n\nnode.id=1\n  log.dirs = /a, \\\n    /b\nkey: value\n\
                    spaced value here\nempty=\nlone\na\\=b=c\\:d\nunicode=\\u00e9\\t.\nnode.id=2\n\
                    back=x\\\\\nnext=1\nurl=PLAINTEXT://:9092\ntrailing=x  \n";
        let expected = [
            ("node.id", "1"),
            ("log.dirs", "/a, /b"),
            ("key", "value"),
            ("spaced", "value here"),
            ("empty", ""),
            ("lone", ""),
            ("a=b", "c:d"),
            ("unicode", "é\t."),
            ("node.id", "2"),
            ("back", "x\\"),
            ("next", "1"),
            ("url", "PLAINTEXT://:9092"),
            ("trailing", "x"),
        ];
        let read = parse(text);
        let read: Vec<(&str, &str)> = read.iter().map(|(k, v)| (&**k, &**v)).collect();
        assert_eq!(read, expected);
    }
}
