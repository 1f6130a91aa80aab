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

    async fn reload(&mut self) -> Result<(), RegistryError> {
        let (image, unattached) = read(self.registry.as_ref(), &self.resolver).await?;
        self.unattached = unattached;
        self.cache.publish(Arc::new(image));
        Ok(())
    }
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
