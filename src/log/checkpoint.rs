//! The small text files of a log directory. Pure: bytes in, bytes out.

use std::collections::BTreeMap;

use crate::types::{Offset, TopicId, TopicName, TopicPartition};

/// Offsets by partition, as in `recovery-point-offset-checkpoint`.
pub(crate) type Offsets = BTreeMap<TopicPartition, Offset>;

/// `0\n<count>\n<topic> <partition> <offset>\n…`
pub(crate) fn offsets_to_text(offsets: &Offsets) -> String {
    let mut text = format!("0\n{}\n", offsets.len());
    for (partition, offset) in offsets {
        text.push_str(&format!(
            "{} {} {offset}\n",
            partition.topic, partition.partition
        ));
    }
    text
}

/// Reads what can be read; the flag says whether that was all. A damaged line costs only itself.
pub(crate) fn offsets_from_text(text: &str) -> (Offsets, bool) {
    // The last line of a torn file may lack the last digits of its offset.
    let (text, torn) = text.split_at(text.rfind('\n').map_or(0, |end| end + 1));
    let mut lines = text.lines();
    let version = lines.next().map(str::trim);
    let count: Option<usize> = lines.next().and_then(|line| line.trim().parse().ok());
    let mut whole = version == Some("0") && torn.is_empty();
    let mut names = TopicNames::default();
    let lines = lines.filter(|line| !line.trim().is_empty());
    let parsed = lines.filter_map(|line| {
        let parsed = parse_line(line, &mut names);
        whole &= parsed.is_some();
        parsed
    });
    // All at once: in the order in which they are written that takes no search for each.
    let offsets: Offsets = parsed.collect();
    whole &= count == Some(offsets.len());
    (offsets, whole)
}

/// Partitions of a topic stand behind one another: their names are one in memory.
#[derive(Debug, Default)]
pub(super) struct TopicNames(Option<TopicName>);

impl TopicNames {
    pub(super) fn of(&mut self, topic: &str) -> TopicName {
        match &self.0 {
            Some(last) if **last == *topic => TopicName::clone(last),
            _ => TopicName::clone(self.0.insert(topic.into())),
        }
    }
}

fn parse_line(line: &str, names: &mut TopicNames) -> Option<(TopicPartition, Offset)> {
    let mut words = line.split_ascii_whitespace();
    let topic = words.next()?;
    let partition = words.next()?.parse().ok()?;
    let offset: Offset = words.next()?.parse().ok()?;
    if words.next().is_some() || offset < 0 {
        return None;
    }
    Some((TopicPartition::new(names.of(topic), partition), offset))
}

/// The content of `partition.metadata`.
pub(crate) fn partition_metadata_to_text(topic_id: TopicId) -> String {
    format!("version: 0\ntopic_id: {topic_id}")
}

pub(crate) fn partition_metadata_from_text(text: &str) -> Option<TopicId> {
    let field = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .map(str::trim)
    };
    if field("version")? != "0" {
        return None;
    }
    TopicId::parse(field("topic_id")?)
}

/// What `meta.properties` says of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MetaProperties {
    pub cluster_id: Option<String>,
    pub node_id: Option<i32>,
    pub directory_id: Option<TopicId>,
}

impl MetaProperties {
    pub(crate) fn to_text(&self) -> String {
        let mut text = String::from("#\nversion=1\n");
        if let Some(id) = &self.cluster_id {
            text.push_str(&format!("cluster.id={id}\n"));
        }
        if let Some(id) = self.node_id {
            text.push_str(&format!("node.id={id}\n"));
        }
        if let Some(id) = self.directory_id {
            text.push_str(&format!("directory.id={id}\n"));
        }
        text
    }

    /// Reads the file; what is missing or malformed is `None`.
    pub(crate) fn from_text(text: &str) -> Self {
        let field = |name: &str| {
            text.lines()
                .filter(|line| !line.starts_with('#'))
                .filter_map(|line| line.split_once('='))
                .find(|(key, _)| key.trim() == name)
                .map(|(_, value)| value.trim())
                .filter(|value| !value.is_empty())
        };
        Self {
            cluster_id: field("cluster.id").map(str::to_owned),
            // Versions before KRaft called it broker.id.
            node_id: field("node.id")
                .or_else(|| field("broker.id"))
                .and_then(|id| id.parse().ok()),
            directory_id: field("directory.id").and_then(TopicId::parse),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_checkpoint_is_kafkas() {
        let offsets = Offsets::from([
            (TopicPartition::new("a", 1), 5),
            (TopicPartition::new("b-c", 0), 7),
        ]);
        let text = "0\n2\na 1 5\nb-c 0 7\n";
        assert_eq!(offsets_to_text(&offsets), text);
        assert_eq!(offsets_from_text(text), (offsets, true));
    }

    #[test]
    fn a_damaged_checkpoint_gives_what_it_can() {
        let (offsets, whole) = offsets_from_text("0\n3\na 1 5\nb 0\n c 0 -2\n");
        assert_eq!(offsets, Offsets::from([(TopicPartition::new("a", 1), 5)]));
        assert!(!whole);
        for text in [
            "",
            "\0\0\0\0",
            "7\n0\n",
            "0\n99999999999999999999\n",
            "0\n-1\n",
        ] {
            assert_eq!(offsets_from_text(text), (Offsets::new(), false), "{text:?}");
        }
        assert_eq!(offsets_from_text("0\n0\n"), (Offsets::new(), true));
        let torn = offsets_from_text("0\n2\na 1 5\nb 0 12345");
        assert_eq!(
            torn,
            (Offsets::from([(TopicPartition::new("a", 1), 5)]), false)
        );
    }

    #[test]
    fn partition_metadata_is_kafkas() {
        let id = TopicId(*b"0123456789abcdef");
        let text = partition_metadata_to_text(id);
        assert_eq!(text, format!("version: 0\ntopic_id: {id}"));
        assert_eq!(partition_metadata_from_text(&text), Some(id));
        for text in [
            "",
            "version: 1\ntopic_id: AAECAwQFBgcICQoLDA0O_w",
            "version: 0\ntopic_id: x",
        ] {
            assert_eq!(partition_metadata_from_text(text), None);
        }
    }

    #[test]
    fn meta_properties_are_read_as_java_writes_them() {
        let text = "#\n#Sun Nov 29 17:31:59 UTC 2026\nnode.id=1\ndirectory.id=AAECAwQFBgcICQoLDA0O_w\n\
                    version=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qk\n";
        let meta = MetaProperties::from_text(text);
        assert_eq!(meta.node_id, Some(1));
        assert_eq!(meta.cluster_id.as_deref(), Some("MkU3OEVBNTcwNTJENDM2Qk"));
        assert_eq!(MetaProperties::from_text(&meta.to_text()), meta);
        assert_eq!(MetaProperties::from_text("\0garbage").node_id, None);
    }
}
