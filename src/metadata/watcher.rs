//! Keeps the image up to date: reads the registry once, then follows its changes.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::delta::{Delta, Unattached};
use super::{Image, MetadataCache, Resolver};
use crate::registry::{Registry, RegistryError, WatchEvent};
use crate::types::TopicId;

/// Keys per page of the first read: gRPC messages stay well below their limit.
const PAGE_KEYS: usize = 1_000;
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(5);

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

    /// Follows the changes until `stop`. A watch that breaks is a reason to read everything again:
    /// what it missed is not known.
    pub async fn run(mut self, stop: CancellationToken) {
        let follow = async {
            let mut retry = RETRY_MIN;
            loop {
                let before = self.cache.current().revision;
                let Err(error) = self.follow().await;
                tracing::warn!(%error, "the watch of the registry broke");
                if self.cache.current().revision > before {
                    retry = RETRY_MIN;
                }
                loop {
                    tokio::time::sleep(retry).await;
                    retry = (retry * 2).min(RETRY_MAX);
                    match self.reload().await {
                        Ok(()) => break,
                        Err(error) => tracing::warn!(%error, "cannot read the registry"),
                    }
                }
                tracing::info!("the registry was read again");
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = follow => {}
        }
    }

    async fn follow(&mut self) -> Result<std::convert::Infallible, RegistryError> {
        let from = self.cache.current().revision + 1;
        let mut watch = self.registry.watch("/", from).await?;
        loop {
            let events = watch.next().await?;
            self.apply(&events);
        }
    }

    fn apply(&mut self, events: &[WatchEvent]) {
        let old = self.cache.current();
        let mut delta = Delta::new(&old, std::mem::take(&mut self.unattached));
        for event in events {
            delta.apply(event);
        }
        let (image, unattached, problems) = delta.finish(&old, &self.resolver);
        report(&problems);
        self.unattached = unattached;
        self.cache.publish(Arc::new(image));
    }

    /// Reads everything again. What another registry says, or an older state of this one, is not
    /// believed: a topic that it does not know has not been deleted.
    async fn reload(&mut self) -> Result<(), RegistryError> {
        let (image, unattached) = read(self.registry.as_ref(), &self.resolver).await?;
        if let Some(why) = disbelief(&self.cache.current(), &image) {
            return Err(RegistryError::Storage(why));
        }
        self.unattached = unattached;
        self.cache.publish(Arc::new(image));
        Ok(())
    }
}

/// Why what was read does not go on from the image that is known, or `None`.
fn disbelief(known: &Image, read: &Image) -> Option<String> {
    if read.cluster_id != known.cluster_id {
        return Some(format!(
            "it is not that of the cluster {} any more, but {}: etcd was wiped, or is another one. \
             This broker goes on with what it knows",
            known.cluster_id,
            if read.cluster_id.is_empty() {
                "empty".to_owned()
            } else {
                format!("that of {}", read.cluster_id)
            }
        ));
    }
    (read.revision < known.revision).then(|| {
        format!(
            "its revision went back from {} to {}: etcd was restored from an older snapshot. This \
             broker goes on with what it knows; bring the newer state back, or restart all brokers \
             to accept the older one",
            known.revision, read.revision
        )
    })
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
        for entry in page.entries {
            delta.apply(&WatchEvent::Put(entry));
        }
        let Some(from) = page.next_key else { break };
        page = registry.range("/", &from, PAGE_KEYS, revision).await?;
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
    use bytes::Bytes;

    use super::*;
    use crate::config::BrokerConfig;
    use crate::registry::{Embedded, Op};
    use crate::time::SystemClock;

    fn image(cluster_id: &str, revision: i64) -> Image {
        Image {
            cluster_id: cluster_id.into(),
            revision,
            ..Image::default()
        }
    }

    #[test]
    fn only_the_same_cluster_that_went_on_is_believed() {
        let known = image("a", 7);
        assert_eq!(disbelief(&known, &image("a", 7)), None);
        assert_eq!(disbelief(&known, &image("a", 8)), None);
        for (read, word) in [
            (image("", 9), "empty"),
            (image("b", 9), "that of b"),
            (image("a", 6), "older snapshot"),
        ] {
            assert!(disbelief(&known, &read).unwrap().contains(word));
        }
        assert_eq!(disbelief(&image("", 0), &image("", 3)), None);
    }

    #[tokio::test]
    async fn a_registry_that_was_wiped_makes_nobody_forget_a_topic() {
        let directory = tempfile::tempdir().unwrap();
        let open = async |name: &str| -> Arc<dyn Registry> {
            let path = directory.path().join(name);
            Arc::new(Embedded::open(path, Arc::new(SystemClock)).await.unwrap()) as _
        };
        let put = |key: &str, value: &str| Op::Put {
            key: key.to_owned(),
            value: Bytes::copy_from_slice(value.as_bytes()),
            lease: 0,
        };
        let registry = open("known").await;
        let topic = r#"{"id":"AAAAAAAAAAAAAAAAAAAAAQ","partitions":[[1]]}"#;
        registry
            .txn(
                vec![],
                vec![put("/cluster/id", "a"), put("/topics/t", topic)],
            )
            .await
            .unwrap();
        let resolver = Resolver::new(&BrokerConfig::for_tests(directory.path()));
        let mut watcher = Watcher::load(registry, resolver).await.unwrap();
        let before = watcher.cache.current();
        assert_eq!(&*before.cluster_id, "a");
        watcher.registry = open("wiped").await;
        assert!(watcher.reload().await.is_err());
        assert!(Arc::ptr_eq(&before, &watcher.cache.current()));
    }
}
