//! Tells a client that asked the wrong broker who leads instead (KIP-951).

use crate::metadata::Image;
use crate::protocol::{CurrentLeader, NodeEndpoint};
use crate::types::{PartitionId, TopicName};

use super::RequestInfo;

/// Collects the leaders that a response names, with their endpoints once each.
#[derive(Debug, Default)]
pub(super) struct Leaders {
    endpoints: Vec<NodeEndpoint>,
}

impl Leaders {
    /// The leader of a partition as the image has it; `None` if there is none.
    pub(super) fn of(
        &mut self,
        image: &Image,
        request: &RequestInfo,
        topic: &TopicName,
        partition: PartitionId,
    ) -> Option<CurrentLeader> {
        let partition = image.partition(topic, partition)?;
        let leader = partition.leader?;
        let known = self.endpoints.iter().any(|known| known.node_id == leader.0);
        if !known && let Some(broker) = image.reach(leader) {
            let reachable = broker
                .endpoints
                .iter()
                .find(|endpoint| endpoint.listener == request.listener);
            if let Some(endpoint) = reachable {
                self.endpoints.push(NodeEndpoint {
                    node_id: leader.0,
                    host: endpoint.host.clone(),
                    port: i32::from(endpoint.port),
                    rack: broker.rack.clone(),
                });
            }
        }
        Some(CurrentLeader {
            leader_id: leader.0,
            leader_epoch: partition.leader_epoch,
        })
    }

    pub(super) fn into_endpoints(self) -> Vec<NodeEndpoint> {
        self.endpoints
    }
}
