//! Keeps the image up to date: reads the registry once, then follows its changes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use super::delta::{Delta, Unattached, keys_of};
use super::{Image, MetadataCache, Resolver};
use crate::registry::{Key, Registry, RegistryError, Revision, Scan, WatchEvent};
use crate::time::Clock;
use crate::types::TopicId;
use crate::types::rules::{Rule, holds};

/// Keys per page of the first read: gRPC messages stay well below their limit.
const PAGE_KEYS: usize = 1_000;
/// Keys alone are short.
const PAGE_NAMES: usize = 10_000;
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(5);
/// How often an outage is told.
const TELL_EVERY: Duration = Duration::from_secs(30);
/// R13: a watch is a hint; how often what it tells is compared with what is there.
const COMPARE_EVERY: Duration = Duration::from_secs(30);

/// Follows the registry.
#[derive(Debug)]
pub struct Watcher {
    registry: Arc<dyn Registry>,
    cache: Arc<MetadataCache>,
    resolver: Resolver,
    unattached: Unattached,
}

impl Watcher {
    /// Reads everything at one revision.
    pub async fn load(
        registry: Arc<dyn Registry>,
        resolver: Resolver,
    ) -> Result<Self, RegistryError> {
        let (image, unattached) = read(registry.as_ref(), &resolver).await?;
        Ok(Self {
            registry,
            cache: Arc::new(MetadataCache::new(image)),
            resolver,
            unattached,
        })
    }

    /// Where the image is published.
    pub fn cache(&self) -> Arc<MetadataCache> {
        Arc::clone(&self.cache)
    }

    /// Topic ids of partitions whose topic is not there: right after [`Watcher::load`] these are what
    /// interrupted creations left behind. None while other brokers are there that may be creating
    /// just now.
    pub fn unattached_topics(&self) -> Vec<TopicId> {
        let image = self.cache.current();
        if image.brokers.len() > 1 {
            return Vec::new();
        }
        let unknown = |id: &&TopicId| !image.topic_names.contains_key(id);
        self.unattached.keys().filter(unknown).copied().collect()
    }

    /// Follows the changes until `stop`. What a watch that broke has missed is found by comparing.
    pub async fn run(mut self, clock: Arc<dyn Clock>, stop: CancellationToken) {
        let follow = async {
            let mut retry = RETRY_MIN;
            let mut told: Option<(Instant, bool)> = None;
            loop {
                let before = self.cache.current().revision;
                let Err(error) = self.follow().await;
                self.cache.set_followed(false);
                if self.cache.current().revision > before {
                    retry = RETRY_MIN;
                    told = None;
                }
                let now = clock.now();
                let is_foreign = matches!(error, RegistryError::Foreign(_));
                // That it is another one is news, whatever was told before.
                let is_known = |(at, foreign): (Instant, bool)| {
                    now < at + TELL_EVERY && (foreign || !is_foreign)
                };
                if !told.is_some_and(is_known) {
                    told = Some((now, is_foreign));
                    tracing::warn!(
                        %error,
                        "the registry cannot be followed; this broker goes on with what it knows"
                    );
                }
                tokio::time::sleep(retry).await;
                retry = (retry * 2).min(RETRY_MAX);
            }
        };
        tokio::select! {
            biased; // a simulation repeats itself
            () = stop.cancelled() => {}
            () = follow => {}
        }
    }

    async fn follow(&mut self) -> Result<std::convert::Infallible, RegistryError> {
        if holds(Rule::R13) {
            self.compare().await?;
        }
        let from = self.cache.current().revision + 1;
        let mut watch = self.registry.watch("/", from).await?;
        self.cache.set_followed(true);
        let mut compare = Box::pin(tokio::time::sleep(COMPARE_EVERY));
        loop {
            tokio::select! {
                biased; // and many events do not put it off
                () = &mut compare, if holds(Rule::R13) => {
                    self.compare().await?;
                    compare.set(tokio::time::sleep(COMPARE_EVERY));
                }
                events = watch.next() => self.apply(&events?)?,
            }
        }
    }

    /// R13: asks for what has changed since the image, and for the names of all keys if anything has: what
    /// is not among them is gone.
    async fn compare(&mut self) -> Result<(), RegistryError> {
        let old = self.cache.current();
        let registry = Arc::clone(&self.registry);
        let mut scan = Scan {
            prefix: "/",
            from: "",
            limit: PAGE_KEYS,
            revision: 0,
            changed_since: old.revision + 1,
            keys_only: false,
        };
        let mut page = registry.scan(scan).await?;
        let cluster = registry.get(&Key::ClusterId.to_string()).await?;
        let cluster = cluster.map_or_else(Bytes::new, |entry| entry.value);
        believe(&old, &cluster, page.revision)?;
        if page.revision == old.revision {
            return Ok(());
        }
        old.newest.check(registry.as_ref()).await?;
        scan.revision = page.revision;
        let mut events = Vec::new();
        loop {
            events.extend(page.entries.into_iter().map(WatchEvent::Put));
            let Some(from) = page.next_key else { break };
            page = registry
                .scan(Scan {
                    from: &from,
                    ..scan
                })
                .await?;
        }
        let gone = self.gone(&old, scan.revision).await?;
        events.extend(gone.into_iter().map(|key| WatchEvent::Delete {
            key,
            revision: scan.revision,
        }));
        self.apply(&events)?;
        let image = self.cache.current();
        if image.revision < scan.revision {
            // Nothing of it was ours; others use the same etcd.
            let mut image = (*image).clone();
            image.revision = scan.revision;
            self.cache.publish(Arc::new(image));
        }
        Ok(())
    }

    /// The keys of `old` that are not there at `revision`.
    async fn gone(
        &self,
        old: &Image,
        revision: Revision,
    ) -> Result<BTreeSet<String>, RegistryError> {
        let mut known = keys_of(old, &self.unattached);
        let mut from = String::new();
        loop {
            let scan = Scan {
                prefix: "/",
                from: &from,
                limit: PAGE_NAMES,
                revision,
                changed_since: 0,
                keys_only: true,
            };
            let page = self.registry.scan(scan).await?;
            for entry in &page.entries {
                known.remove(&entry.key);
            }
            match page.next_key {
                Some(next) => from = next,
                None => return Ok(known),
            }
        }
    }

    /// Takes one group of changes; what the image has already is left out (R13).
    fn apply(&mut self, events: &[WatchEvent]) -> Result<(), RegistryError> {
        let old = self.cache.current();
        let is_new = |event: &&WatchEvent| match event {
            _ if !holds(Rule::R13) => true,
            WatchEvent::Put(entry) => entry.mod_revision > old.revision,
            WatchEvent::Delete { revision, .. } => *revision > old.revision,
        };
        let cluster = Key::ClusterId.to_string();
        for event in events {
            match event {
                WatchEvent::Put(entry) if entry.key == cluster => {
                    believe(&old, &entry.value, entry.mod_revision)?;
                }
                WatchEvent::Delete { key, revision } if *key == cluster => {
                    believe(&old, b"", *revision)?;
                }
                _ => {}
            }
        }
        let mut delta = Delta::new(&old, std::mem::take(&mut self.unattached));
        let mut any = false;
        for event in events.iter().filter(is_new) {
            any = true;
            delta.apply(event);
        }
        let (image, unattached, problems) = delta.finish(&old, &self.resolver);
        report(&problems);
        self.unattached = unattached;
        if any {
            self.cache.publish(Arc::new(image));
        }
        Ok(())
    }
}

/// An error where the registry does not go on from the image that is known: what another one says, or an
/// older state of this one, is not believed. A topic that it does not know has not been deleted.
fn believe(known: &Image, cluster_id: &[u8], revision: Revision) -> Result<(), RegistryError> {
    let id = &known.cluster_id;
    if !id.is_empty() && cluster_id != id.as_bytes() {
        let now = match cluster_id {
            b"" => "empty".to_owned(),
            other => format!("that of {}", String::from_utf8_lossy(other)),
        };
        return Err(RegistryError::Foreign(format!(
            "it does not know the cluster {id} any more, but is {now}: etcd was wiped, or is another one"
        )));
    }
    if revision < known.revision {
        return Err(RegistryError::Foreign(format!(
            "its revision went back from {} to {revision}: etcd was restored from an older snapshot, or \
             is another one; bring the newer state back",
            known.revision
        )));
    }
    Ok(())
}

/// The cluster as the registry has it now, for whoever needs it once.
pub async fn read_image(
    registry: &dyn Registry,
    resolver: &Resolver,
) -> Result<Image, RegistryError> {
    Ok(read(registry, resolver).await?.0)
}

/// Reads all keys at one revision, page by page.
async fn read(
    registry: &dyn Registry,
    resolver: &Resolver,
) -> Result<(Image, Unattached), RegistryError> {
    let empty = Image::default();
    let mut delta = Delta::new(&empty, Unattached::new());
    let mut page = registry.range("/", "", PAGE_KEYS, 0).await?;
    let revision = page.revision;
    loop {
        let (entries, from) = (page.entries, page.next_key);
        // The next page comes while this one is decoded.
        let next = async {
            let from = from?;
            Some(registry.range("/", &from, PAGE_KEYS, revision).await)
        };
        let decode = async {
            for entry in entries {
                delta.apply(&WatchEvent::Put(entry));
            }
        };
        match tokio::join!(next, decode) {
            (Some(next), ()) => page = next?,
            (None, ()) => break,
        }
    }
    let (mut image, unattached, problems) = delta.finish(&empty, resolver);
    report(&problems);
    image.revision = revision;
    Ok((image, unattached))
}

fn report(problems: &[String]) {
    for problem in problems {
        tracing::error!(problem, "the registry holds what this broker cannot use");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::BrokerConfig;
    use crate::registry::{Embedded, Op};
    use crate::time::SystemClock;

    #[test]
    fn only_the_same_cluster_that_went_on_is_believed() {
        let known = Image {
            cluster_id: "a".into(),
            revision: 7,
            ..Image::default()
        };
        assert!(believe(&known, b"a", 7).is_ok() && believe(&known, b"a", 8).is_ok());
        for (id, revision, word) in [
            (&b""[..], 9, "empty"),
            (b"b", 9, "that of b"),
            (b"a", 6, "older snapshot"),
        ] {
            let error = believe(&known, id, revision).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
        assert!(believe(&Image::default(), b"", 3).is_ok());
    }

    fn put(key: &str, value: &str) -> Op {
        Op::Put {
            key: key.to_owned(),
            value: Bytes::copy_from_slice(value.as_bytes()),
            lease: 0,
        }
    }

    async fn registry(directory: &tempfile::TempDir, name: &str) -> Arc<dyn Registry> {
        let path = directory.path().join(name);
        Arc::new(Embedded::open(path, Arc::new(SystemClock)).await.unwrap())
    }

    const TOPIC: &str = r#"{"id":"AAAAAAAAAAAAAAAAAAAAAQ","replicas":[[1]]}"#;

    #[tokio::test]
    async fn a_registry_that_was_wiped_makes_nobody_forget_a_topic() {
        let directory = tempfile::tempdir().unwrap();
        let known = registry(&directory, "known").await;
        let ops = vec![put("/cluster/id", "a"), put("/topics/t", TOPIC)];
        known.txn(vec![], ops).await.unwrap();
        let resolver = Resolver::new(&BrokerConfig::for_tests(directory.path()));
        let mut watcher = Watcher::load(known, resolver).await.unwrap();
        let before = watcher.cache.current();
        assert_eq!(&*before.cluster_id, "a");
        watcher.registry = registry(&directory, "wiped").await;
        assert!(watcher.compare().await.is_err());
        // Another cluster's, and further on.
        let other = registry(&directory, "other").await;
        for id in ["b", "b", "b", "b"] {
            let ops = vec![put("/cluster/id", id)];
            other.txn(vec![], ops).await.unwrap();
        }
        watcher.registry = other;
        assert!(watcher.compare().await.is_err());
        assert!(Arc::ptr_eq(&before, &watcher.cache.current()));
    }

    /// R13
    #[tokio::test]
    async fn comparing_finds_what_no_watch_has_told() {
        let directory = tempfile::tempdir().unwrap();
        let registry = registry(&directory, "known").await;
        let ops = vec![
            put("/cluster/id", "a"),
            put("/topics/t", TOPIC),
            put("/topics/u", &TOPIC.replace("AQ", "Ag")),
            put("/config/groups/g", r#"{"a":"b"}"#),
        ];
        registry.txn(vec![], ops).await.unwrap();
        let resolver = Resolver::new(&BrokerConfig::for_tests(directory.path()));
        let mut watcher = Watcher::load(Arc::clone(&registry), resolver)
            .await
            .unwrap();
        let gone = ["/topics/u", "/config/groups/g"].map(|key| Op::Delete {
            key: key.to_owned(),
        });
        registry.txn(vec![], gone.to_vec()).await.unwrap();
        let newer = vec![put("/topics/v", &TOPIC.replace("AQ", "Aw"))];
        let newest = registry.txn(vec![], newer).await.unwrap().revision;
        watcher.compare().await.unwrap();
        let image = watcher.cache.current();
        let names: Vec<_> = image.topics.keys().map(|name| &**name).collect();
        assert_eq!((names, image.revision), (vec!["t", "v"], newest));
        assert!(image.group_configs.is_empty());
    }
}
