//! How the runs of a [`World`] begin and end: clean stops, kills, power cuts, and power cuts at a start.

use std::path::PathBuf;
use std::sync::Arc;

use super::disk::{CrashDisk, Watcher};
use super::image::Image;
use super::made::new_batch;
use super::model::Topic;
use super::random::Random;
use super::world::{Failed, Heard, Running, TOPICS, World, partition, topic_id};
use crate::config::TopicConfig;
use crate::log::tests::support::manager_config;
use crate::log::{LogError, LogManager, LogManagerConfig};
use crate::time::Clock;

/// What ended a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Death {
    /// Takes what was not synced.
    PowerCut,
    /// Of the process, between two operations.
    Kill,
    /// In the middle of one.
    KillInside,
}

/// How a run begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Start {
    /// All logs are opened at once.
    pub all: bool,
    /// The power may go while it begins.
    pub cuts: bool,
}

fn root() -> PathBuf {
    PathBuf::from("/data")
}

fn log_config() -> LogManagerConfig {
    LogManagerConfig {
        tail_cache_bytes: 0,
        initial_task_delay_ms: 200,
        flush_offset_checkpoint_interval_ms: 500,
        flush_start_offset_checkpoint_interval_ms: 700,
        retention_check_interval_ms: 300,
        ..manager_config(&root())
    }
}

impl World {
    /// A clean stop and start, sometimes with the power going in between.
    pub(super) fn restart(self: &Arc<Self>, random: &mut Random) -> Result<(), Failed> {
        self.manager().close();
        self.outcome()?;
        if self.disk().is_foul() {
            self.recover(random.next(), Death::Kill); // the stop may have failed, half way
            return Ok(());
        }
        let all_open = self.opened_is_flushed();
        let disk = self.disk();
        let image = match random.one_in(2) {
            true => disk.after_power_cut(random.next()),
            false => disk.image().after_kill(),
        };
        self.stop();
        let cuts = self.start(
            image,
            random.next(),
            Start {
                all: random.one_in(2),
                cuts: true,
            },
        );
        let unrecovered = self.manager().unrecovered();
        assert!(
            !all_open || cuts > 0 || unrecovered.is_empty(),
            "{unrecovered:?}"
        );
        Ok(())
    }

    /// Everything that is in an open log will be found; whether all are open.
    fn opened_is_flushed(&self) -> bool {
        let running = self.running.lock();
        let logs = &running.as_ref().unwrap().logs;
        for (topic, log) in self.model.lock().topics.iter_mut().zip(logs) {
            if log.is_some() {
                topic.flushed = topic.end();
            }
        }
        logs.iter().all(Option::is_some)
    }

    /// Starts again after the power went, or the process was killed.
    pub(super) fn recover(self: &Arc<Self>, seed: u64, death: Death) {
        self.say(|| format!("  starts again after {death:?}"));
        let disk = self.disk();
        let image = match death {
            Death::PowerCut => disk.after_power_cut(seed),
            Death::Kill | Death::KillInside => disk.image().after_kill(),
        };
        let before = self.running.lock().as_ref().unwrap().logs.clone();
        let ends: Vec<_> = before
            .iter()
            .flatten()
            .map(|l| l.log_end_offset())
            .collect();
        self.stop();
        self.start(
            image,
            seed,
            Start {
                all: true,
                cuts: death == Death::PowerCut,
            },
        );
        if death == Death::Kill {
            // The page cache lives on: another process finds what this one saw.
            let after = self.running.lock().as_ref().unwrap().logs.clone();
            let open = before.iter().zip(&after).filter(|(b, _)| b.is_some());
            let found: Vec<_> = open
                .flat_map(|(_, a)| a)
                .map(|l| l.log_end_offset())
                .collect();
            assert_eq!(found, ends, "the ends after a kill");
        }
    }

    pub(super) fn stop(&self) {
        if let Some(running) = self.running.lock().take() {
            running.disk.watch(None);
        }
    }

    /// Opens what is on the disk; the power may go while that is done, so often.
    pub(super) fn start(self: &Arc<Self>, mut image: Image, seed: u64, start: Start) -> usize {
        let mut random = Random::of(seed, 4);
        let lie = self.setup.lie;
        self.model.lock().failed = false;
        let cuts = match start.cuts {
            true => [0, 0, 0, 1, 2][random.below(5)],
            false => 0,
        };
        for _ in 0..cuts {
            let disk = CrashDisk::new(image.clone(), random.next(), lie);
            disk.power_off_after(Some(random.next() % 16));
            let _ = self.open(&disk).map(|manager| {
                let model = self.model.lock();
                for (number, topic) in model.topics.iter().enumerate() {
                    let config = Arc::clone(&self.configs.lock()[number]);
                    let _ = manager.log(&topic.partition, topic.id, config);
                }
            });
            self.say(|| format!("  the power goes again, operation {}", disk.count()));
            image = disk.after_power_cut(random.next());
        }
        let disk = CrashDisk::new(image, random.next(), lie);
        let manager = self.open(&disk).unwrap();
        manager.set_flush_listener(Arc::new(Heard(Arc::clone(&self.model))));
        disk.watch(Some(Arc::clone(self) as Arc<dyn Watcher>));
        *self.running.lock() = Some(Running {
            disk,
            manager,
            logs: vec![None; TOPICS],
        });
        for topic in 0..TOPICS {
            if start.all || random.one_in(2) {
                self.log(topic).expect("nothing fails now");
            }
        }
        cuts
    }

    fn open(&self, disk: &CrashDisk) -> Result<Arc<LogManager>, LogError> {
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        LogManager::open_still(log_config(), clock, Arc::new(disk.clone()))
    }

    /// After a failed sync nothing goes on, and nothing is tried again.
    pub(super) fn check_offline(&self) {
        let disk = self.disk();
        assert!(!self.manager().describe()[0].online);
        let count = disk.count();
        let running = self.running.lock();
        let logs = running.as_ref().unwrap().logs.iter().flatten();
        for log in logs {
            assert!(log.flush().is_err());
            let batch = new_batch(
                &Topic::new(partition(0), topic_id(0)),
                0,
                &mut Random::new(0),
            );
            assert!(log.append(batch.1, 0, 0).is_err());
            assert!(log.advance_log_start_offset(log.log_end_offset()).is_err());
        }
        assert_eq!(disk.count(), count, "something was written offline");
    }

    /// The power goes now, in another world: what would a start find?
    pub(super) fn try_power_cut(&self, seed: u64) {
        let disk = self.disk();
        let mut image = disk.after_power_cut(seed);
        let mut random = Random::of(seed, 5);
        let mut model = self.model.lock().clone();
        let configs = self.configs.lock().clone();
        for round in 0..3 {
            let disk = CrashDisk::new(image, random.next(), self.setup.lie);
            if round < 2 && random.one_in(4) {
                disk.power_off_after(Some(random.next() % 12));
            }
            let opened = self.open(&disk).and_then(|manager| {
                let open = |(topic, config): (&Topic, &Arc<TopicConfig>)| {
                    manager.log(&topic.partition, topic.id, Arc::clone(config))
                };
                let logs = model.topics.iter().zip(&configs).map(open);
                Ok((logs.collect::<Result<Vec<_>, _>>()?, manager))
            });
            match opened {
                Ok((logs, _manager)) if !disk.is_off() => {
                    disk.pause(true);
                    for (topic, log) in model.topics.iter_mut().zip(&logs) {
                        topic.reconcile(log);
                        topic.check(log, &mut random);
                    }
                    return;
                }
                Ok(_) => {}
                Err(error) => assert!(disk.is_off(), "{error}"),
            }
            image = disk.after_power_cut(random.next());
        }
    }
}
