//! The newest image, and who hears of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use super::Image;
use crate::registry::Revision;

/// Applies a change of the image before anybody else can see the new one; must not block.
pub trait ImageListener: std::fmt::Debug + Send + Sync {
    /// `old` is empty (revision 0) in the call that a listener gets when it is added.
    fn image_changed(&self, old: &Image, new: &Arc<Image>);
}

/// Holds the newest image. Readers get it at the price of a reference count; whoever publishes
/// tells the listeners first, so that nobody acts on an image that, say, the replicas have not
/// applied yet.
#[derive(Debug)]
pub struct MetadataCache {
    current: RwLock<Arc<Image>>,
    revision: watch::Sender<Revision>,
    /// The registry is being followed: what it says arrives here.
    followed: AtomicBool,
    /// Also makes publishing and adding a listener exclude each other.
    listeners: Mutex<Vec<Arc<dyn ImageListener>>>,
}

impl Default for MetadataCache {
    fn default() -> Self {
        Self::new(Image::default())
    }
}

impl MetadataCache {
    pub fn new(image: Image) -> Self {
        Self {
            revision: watch::Sender::new(image.revision),
            current: RwLock::new(Arc::new(image)),
            followed: AtomicBool::new(false),
            listeners: Mutex::default(),
        }
    }

    /// The newest image; cheap, never blocks.
    pub fn current(&self) -> Arc<Image> {
        Arc::clone(&self.current.read())
    }

    /// Whether changes arrive; if not, the image may be behind.
    pub fn is_followed(&self) -> bool {
        self.followed.load(Ordering::Relaxed)
    }

    pub(super) fn set_followed(&self, followed: bool) {
        self.followed.store(followed, Ordering::Relaxed);
    }

    /// Returns once the image has reached `revision`. Without end if it never does: the caller
    /// brings the timeout.
    pub async fn wait_for(&self, revision: Revision) {
        let mut seen = self.revision.subscribe();
        // The sender lives as long as `self`.
        let _ = seen.wait_for(|&reached| reached >= revision).await;
    }

    /// Returns once the image is newer than `revision`.
    pub async fn changed_since(&self, revision: Revision) {
        self.wait_for(revision + 1).await;
    }

    /// Adds a listener and tells it of the current image, the old one being empty.
    pub fn add_listener(&self, listener: Arc<dyn ImageListener>) {
        let mut listeners = self.listeners.lock();
        listener.image_changed(&Image::default(), &self.current());
        listeners.push(listener);
    }

    /// Tells the listeners of `image`, then makes it the current one. The watcher is the one caller
    /// (and tests).
    pub fn publish(&self, image: Arc<Image>) {
        let listeners = self.listeners.lock();
        let old = self.current();
        for listener in listeners.iter() {
            listener.image_changed(&old, &image);
        }
        let revision = image.revision;
        *self.current.write() = image;
        self.revision.send_replace(revision);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default)]
    struct Seen(Mutex<Vec<(Revision, Revision)>>);

    impl ImageListener for Seen {
        fn image_changed(&self, old: &Image, new: &Arc<Image>) {
            self.0.lock().push((old.revision, new.revision));
        }
    }

    fn at(revision: Revision) -> Arc<Image> {
        Arc::new(Image {
            revision,
            ..Image::default()
        })
    }

    #[tokio::test]
    async fn listeners_hear_before_waiters_and_every_image_once() {
        let cache = MetadataCache::default();
        cache.publish(at(3));
        let seen = Arc::new(Seen::default());
        cache.add_listener(Arc::clone(&seen) as Arc<dyn ImageListener>);
        let (_, current) = tokio::join!(async { cache.publish(at(7)) }, async {
            cache.wait_for(5).await;
            cache.current().revision
        });
        assert_eq!(current, 7);
        assert_eq!(*seen.0.lock(), [(0, 3), (3, 7)]);
    }
}
