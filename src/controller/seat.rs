//! The controller's seat: a key under the lease of the broker that sits there. Its create revision is the
//! controller's identity (R11).

use bytes::Bytes;

use crate::registry::value::{ControllerValue, encode};
use crate::registry::{Compare, Key, KeyValue, LeaseId, Op};
use crate::types::BrokerId;

/// What taking the seat demands and writes, where it is free; `epoch`: the count of controllers.
pub(super) fn seat_ops(
    broker: BrokerId,
    lease: LeaseId,
    epoch: Option<&KeyValue>,
) -> (Vec<Compare>, Vec<Op>) {
    let before = epoch.and_then(|entry| {
        let text = std::str::from_utf8(&entry.value).ok()?;
        text.parse::<i64>().ok()
    });
    let next = before.unwrap_or_default().saturating_add(1);
    let compares = vec![
        Compare::CreateRevision {
            key: Key::Controller.into(),
            revision: 0,
        },
        Compare::ModRevision {
            key: Key::ControllerEpoch.into(),
            revision: epoch.map_or(0, |entry| entry.mod_revision),
        },
    ];
    let seat = ControllerValue { broker: broker.0 };
    let ops = vec![
        Op::Put {
            key: Key::Controller.into(),
            value: encode(&seat),
            lease,
        },
        Op::Put {
            key: Key::ControllerEpoch.into(),
            value: Bytes::from(next.to_string()),
            lease: 0,
        },
    ];
    (compares, ops)
}
