//! Who speaks to this broker: client software, the versions of APIs that it uses, and clients so old that
//! Kafka 4 does not serve them any more (KIP-896).
//!
//! A connection's first use of an API's version is counted; after that it costs two loads a request.
//! Names are the clients' own, so each table has a bound; what does not fit is counted as `other`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use parking_lot::Mutex;

use super::names::{kafka_4_floor, request_name};
use crate::types::ListenerName;

/// Kinds of software, and entries of each table.
const SOFTWARE_MAX: usize = 128;
const USES_MAX: usize = 1_024;
const TOO_OLD_MAX: usize = 256;
/// A client's id is as long as it likes.
const CLIENT_ID_CHARS_MAX: usize = 64;
/// Different versions of APIs that one connection is remembered for.
const SEEN_MAX: usize = 64;

/// What a client calls itself in ApiVersions (KIP-511).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Software {
    pub name: Arc<str>,
    pub version: Arc<str>,
}

impl Software {
    fn called(word: &str) -> Self {
        Self {
            name: Arc::from(word),
            version: Arc::from(word),
        }
    }
}

/// A client that Kafka 4 would send away.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OldClient {
    pub id: String,
    pub software: Software,
}

/// An API's key and version in one number.
type Use = (i16, i16);

/// The tables.
#[derive(Debug, Default)]
pub struct Radar {
    open: Mutex<BTreeMap<(ListenerName, Software), u64>>,
    uses: Mutex<BTreeMap<(Software, Use), u64>>,
    too_old: Mutex<BTreeMap<(OldClient, Use), u64>>,
}

/// What is remembered of one connection.
#[derive(Debug, Default)]
pub struct ClientUse {
    /// The two last ones: most connections do nothing else for long.
    recent: [AtomicU32; 2],
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    software: Option<OpenSoftware>,
    uses: Vec<Use>,
}

/// Counts a connection's software until it is dropped.
#[derive(Debug)]
struct OpenSoftware {
    radar: Arc<Radar>,
    entry: (ListenerName, Software),
}

impl Drop for OpenSoftware {
    fn drop(&mut self) {
        let mut open = self.radar.open.lock();
        if let Some(count) = open.get_mut(&self.entry) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.entry);
            }
        }
    }
}

/// Never zero, which is what an unused slot holds.
fn packed((key, version): Use) -> u32 {
    let part = |number: i16| u32::from(u16::from_ne_bytes(number.to_ne_bytes()));
    (part(key) << 16 | part(version)).wrapping_add(1)
}

impl ClientUse {
    fn software(&self) -> Option<Software> {
        let seen = self.seen.lock();
        seen.software.as_ref().map(|open| open.entry.1.clone())
    }

    /// `true` for the first time.
    fn note(&self, used: Use) -> bool {
        let packed = packed(used);
        if self
            .recent
            .iter()
            .any(|recent| recent.load(Relaxed) == packed)
        {
            return false;
        }
        let before = self.recent[0].swap(packed, Relaxed);
        self.recent[1].store(before, Relaxed);
        let mut seen = self.seen.lock();
        if seen.uses.contains(&used) || seen.uses.len() >= SEEN_MAX {
            return false;
        }
        seen.uses.push(used);
        true
    }
}

impl Radar {
    /// A connection told its client's software.
    pub fn told(
        self: &Arc<Self>,
        client: &ClientUse,
        listener: &ListenerName,
        name: &str,
        version: &str,
    ) {
        let mut entry = (
            ListenerName::clone(listener),
            Software {
                name: Arc::from(name),
                version: Arc::from(version),
            },
        );
        let mut open = self.open.lock();
        if open.len() >= SOFTWARE_MAX && !open.contains_key(&entry) {
            entry.1 = Software::called("other");
        }
        *open.entry(entry.clone()).or_default() += 1;
        drop(open);
        let radar = Arc::clone(self);
        let before = client
            .seen
            .lock()
            .software
            .replace(OpenSoftware { radar, entry });
        drop(before); // not under the lock
    }

    /// A connection asked for this version of an API.
    pub fn used(&self, client: &ClientUse, key: i16, version: i16) {
        if !client.note((key, version)) {
            return;
        }
        let software = client
            .software()
            .unwrap_or_else(|| Software::called("unknown"));
        let mut uses = self.uses.lock();
        count(
            &mut uses,
            (software, (key, version)),
            USES_MAX,
            |(_, used)| (Software::called("other"), used),
        );
    }

    /// A version that is not served was asked for. `true` if Kafka 4 has removed it and this client has
    /// not been seen to ask for it before.
    pub fn refused(&self, client: &ClientUse, id: Option<&str>, key: i16, version: i16) -> bool {
        if version < 0 || version >= kafka_4_floor(key) {
            return false;
        }
        let id = id.unwrap_or_default().chars().take(CLIENT_ID_CHARS_MAX);
        let software = client
            .software()
            .unwrap_or_else(|| Software::called("unknown"));
        let client = OldClient {
            id: id.collect(),
            software,
        };
        let mut too_old = self.too_old.lock();
        count(
            &mut too_old,
            (client, (key, version)),
            TOO_OLD_MAX,
            |(_, used)| {
                let software = Software::called("other");
                let id = "other".to_string();
                (OldClient { id, software }, used)
            },
        )
    }

    pub(super) fn each_open(&self, mut show: impl FnMut(&ListenerName, &Software, u64)) {
        for ((listener, software), count) in self.open.lock().iter() {
            show(listener, software, *count);
        }
    }

    pub(super) fn each_use(&self, mut show: impl FnMut(&Software, &'static str, i16, u64)) {
        for ((software, (key, version)), count) in self.uses.lock().iter() {
            show(software, request_name(*key), *version, *count);
        }
    }

    pub(super) fn each_too_old(&self, mut show: impl FnMut(&OldClient, &'static str, i16, u64)) {
        for ((client, (key, version)), count) in self.too_old.lock().iter() {
            show(client, request_name(*key), *version, *count);
        }
    }
}

/// Counts an entry, or what it is called where there is no room for it; `true` if it is new.
fn count<K: Ord>(
    table: &mut BTreeMap<K, u64>,
    mut entry: K,
    max: usize,
    other: impl FnOnce(K) -> K,
) -> bool {
    if table.len() >= max && !table.contains_key(&entry) {
        entry = other(entry);
    }
    let count = table.entry(entry).or_default();
    *count += 1;
    *count == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses(radar: &Radar) -> Vec<String> {
        let mut lines = Vec::new();
        radar.each_use(|software, request, version, count| {
            lines.push(format!("{} {request} {version}: {count}", software.name));
        });
        lines
    }

    #[test]
    fn a_connection_counts_once_for_each_version_that_it_uses() {
        let radar = Arc::new(Radar::default());
        let listener: ListenerName = "PLAINTEXT".into();
        let (old, new) = (ClientUse::default(), ClientUse::default());
        radar.told(&new, &listener, "apache-kafka-java", "4.4.0");
        for _ in 0..3 {
            for key in [0, 1, 3] {
                radar.used(&new, key, 12);
                radar.used(&old, key, 5);
            }
        }
        assert_eq!(
            uses(&radar),
            [
                "apache-kafka-java Produce 12: 1",
                "apache-kafka-java FetchConsumer 12: 1",
                "apache-kafka-java Metadata 12: 1",
                "unknown Produce 5: 1",
                "unknown FetchConsumer 5: 1",
                "unknown Metadata 5: 1",
            ]
        );
        let open = |radar: &Radar| {
            let mut sum = 0;
            radar.each_open(|_, _, count| sum += count);
            sum
        };
        radar.told(&new, &listener, "apache-kafka-java", "4.4.0");
        assert_eq!(open(&radar), 1);
        drop(new);
        assert_eq!(open(&radar), 0);
    }

    #[test]
    fn clients_that_kafka_4_sends_away_are_told_apart() {
        let radar = Arc::new(Radar::default());
        let client = ClientUse::default();
        assert!(radar.refused(&client, Some("billing"), 0, 2));
        assert!(!radar.refused(&client, Some("billing"), 0, 2));
        assert!(radar.refused(&client, None, 1, 3));
        // Too new is not too old.
        assert!(!radar.refused(&client, Some("billing"), 0, 99));
        assert!(!radar.refused(&client, Some("billing"), 3, 0));
        let mut lines = Vec::new();
        radar.each_too_old(|client, request, version, count| {
            lines.push(format!("{:?} {request} {version}: {count}", client.id));
        });
        assert_eq!(
            lines,
            ["\"\" FetchConsumer 3: 1", "\"billing\" Produce 2: 2"]
        );
    }

    #[test]
    fn strangers_names_do_not_fill_the_memory() {
        let radar = Arc::new(Radar::default());
        let listener: ListenerName = "PLAINTEXT".into();
        let clients: Vec<ClientUse> = (0..3_000).map(|_| ClientUse::default()).collect();
        for (index, client) in clients.iter().enumerate() {
            radar.told(client, &listener, &format!("name{index}"), "1");
            let version = i16::try_from(index % 16).unwrap();
            radar.used(client, version * 2, version);
            radar.refused(client, Some(&"long".repeat(index)), 0, version - 5);
        }
        assert_eq!(radar.open.lock().len(), SOFTWARE_MAX + 1);
        assert!(radar.uses.lock().len() <= USES_MAX * 2);
        assert!(radar.too_old.lock().len() <= TOO_OLD_MAX * 2);
        drop(clients);
        assert!(radar.open.lock().is_empty());
    }
}
