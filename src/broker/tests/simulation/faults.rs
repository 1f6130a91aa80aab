//! What goes wrong.

use super::node::TTL;
use super::post::{Ask, Part, Who};
use super::world::{Event, FAULTS_END, World};
use crate::registry::value::{PartitionValue, decode};
use crate::registry::{Key, Op};
use crate::types::BrokerId;

impl World {
    pub(super) fn fault(&mut self) {
        if self.now >= FAULTS_END - 1_000 {
            return self.heal();
        }
        let node = self.one_of(self.nodes.len());
        let other = (node + 1 + self.one_of(self.nodes.len() - 1)) % self.nodes.len();
        let (until, ways) = (self.now + self.below(2 * TTL), self.below(3));
        self.counts.faults += 1;
        match self.below(20) {
            0 | 1 => self.crash(node, true),
            2 | 3 => self.crash(node, false),
            4 => self.power_cut(),
            5 | 6 => {
                self.nodes[node].paused_until = until;
                self.tell(|| format!("{node} is paused until {until}"));
            }
            7 | 8 => self.cut_off(node, self.registry(), until, ways),
            9 | 10 => self.cut_off(node, other, until, ways),
            11 => {
                // From all others, but not from the registry.
                for other in (0..self.nodes.len()).filter(|other| *other != node) {
                    self.cut_off(node, other, until, ways);
                }
            }
            12 | 13 => self.registry_goes(),
            14 => {
                self.tell(|| "all watches break".to_owned());
                self.store.compacted = self.store.revision;
                self.break_watches();
            }
            15 => {
                let skew = i64::try_from(self.below(3_600_000)).unwrap() - 1_800_000;
                let clock = &self.nodes[node].clock;
                clock.skew.store(skew, std::sync::atomic::Ordering::Relaxed);
                self.tell(|| format!("{node}'s clock is off by {skew} ms"));
            }
            16 => {
                self.nodes[node].sync_ms = if self.chance(50) { 3 } else { 600 };
                let ms = self.nodes[node].sync_ms;
                self.tell(|| format!("syncs of {node} take up to {ms} ms"));
            }
            17 => self.stop(node),
            _ => {
                self.slow_until = self.now + self.below(5_000);
                self.tell(|| "everything is slow".to_owned());
            }
        }
        let most = if self.chance(50) { 1_200 } else { 5_000 };
        let ms = 200 + self.below(most);
        self.after(ms, Event::Fault);
    }

    /// Without syncs the promise holds while not too many forget at once.
    fn may_crash(&self, node: usize) -> bool {
        let id = self.nodes[node].id();
        let is_well = |id: &BrokerId| {
            let node = &self.nodes[usize::try_from(id.0).unwrap()];
            let registered = self.store.broker_epoch(*id);
            node.running.is_some()
                && node.paused_until <= self.now
                && registered != 0
                && node.broker_epoch() == registered
        };
        self.specs.iter().filter(|spec| !spec.synced).all(|spec| {
            let now = self.store.partition(spec.id, spec.index);
            let counts = now.isr.contains(&id.0) || now.elr.contains(&id.0);
            let healthy = now.isr.len() == spec.replicas.len() && spec.replicas.iter().all(is_well);
            healthy || !counts
        })
    }

    pub(super) fn crash(&mut self, node: usize, power: bool) {
        if self.nodes[node].running.is_none() || !self.may_crash(node) {
            return;
        }
        self.tell(|| format!("{node} crashes, power {power}"));
        self.down(node, power);
    }

    fn down(&mut self, node: usize, power: bool) {
        let seed = self.next();
        self.nodes[node].crash(power.then_some(seed));
        self.oracle.forget(node);
        self.coordinators[node] = super::clients::Coordinator::default();
        let ms = 50 + self.below(2 * TTL);
        self.after(ms, Event::Boot(node));
    }

    /// Of all of them.
    fn power_cut(&mut self) {
        if !self.specs.iter().all(|spec| spec.synced) {
            return;
        }
        self.tell(|| "the power goes".to_owned());
        for node in 0..self.nodes.len() {
            if self.nodes[node].running.is_some() {
                self.down(node, true);
            }
        }
    }

    /// A clean stop: everything is synced, and the registration ends.
    fn stop(&mut self, node: usize) {
        if self.nodes[node].running.is_none() || self.nodes[node].paused_until > self.now {
            return;
        }
        if self.nodes[node].broker_epoch() == 0 {
            return;
        }
        self.tell(|| format!("{node} stops"));
        self.nodes[node].close();
        let life = self.nodes[node].life;
        let ms = 30 + self.below(500);
        self.after(ms, Event::Closed(node, life));
    }

    pub(super) fn closed(&mut self, node: usize) {
        self.down(node, false);
    }

    /// It does not answer for a while; then it has lost count of the time, or has not.
    fn registry_goes(&mut self) {
        let until = self.now + self.below(2 * TTL);
        self.away_until = until;
        self.tell(|| format!("the registry is away until {until}"));
        if self.chance(50) {
            self.store.lengthen_leases(until);
        }
    }

    /// Now and then, where nothing is synced: who is about to join dies and forgets before the registry
    /// hears that it may.
    pub(super) fn hinder(&mut self, who: Who, ask: &Ask) {
        let Ask::Txn(_, ops) = ask else { return };
        if who.part != Part::Publisher || self.calm() {
            return;
        }
        let Some(joining) = ops.iter().find_map(|op| self.joining(op)) else {
            return;
        };
        if !self.chance(10) {
            return;
        }
        let until = self.now + TTL + self.below(TTL);
        self.tell(|| format!("{joining} dies while it joins; held until {until}"));
        self.held = Some((who.node, until));
        self.cut_off(joining, who.node, until + TTL, 0);
        self.crash(joining, true);
        self.counts.faults += 1;
    }

    /// Who is to join the ISR of a partition that loses what is not synced.
    fn joining(&self, op: &Op) -> Option<usize> {
        let Op::Put { key, value, .. } = op else {
            return None;
        };
        let Some(Key::Partition(topic, index)) = Key::parse(key) else {
            return None;
        };
        let after: PartitionValue = decode(value).ok()?;
        let before = self.store.partition(topic, index);
        let of = |spec: &&super::world::Spec| spec.id == topic && spec.index == index;
        let spec = self.specs.iter().find(of)?;
        let joins = |id: &&i32| !before.isr.contains(id) && !before.elr.contains(id);
        let id = after.isr.iter().find(joins).filter(|_| !spec.synced)?;
        usize::try_from(*id).ok()
    }

    fn cut_off(&mut self, a: usize, b: usize, until: u64, ways: u64) {
        self.tell(|| format!("{a} and {b} are cut off until {until}, {ways}"));
        if ways != 1 {
            self.cut.insert((a, b), until);
        }
        if ways != 2 {
            self.cut.insert((b, a), until);
        }
    }

    fn heal(&mut self) {
        self.tell(|| "all is well from now on".to_owned());
        self.cut.clear();
        self.slow_until = 0;
        self.break_watches();
        self.away_until = self.away_until.min(self.now);
        for node in &mut self.nodes {
            node.paused_until = node.paused_until.min(self.now);
            node.sync_ms = 3;
            node.clock
                .skew
                .store(0, std::sync::atomic::Ordering::Relaxed);
        }
    }
}
