//! The cluster itself: its id, its brokers, what they speak.

use kafka_protocol::messages::{DescribeClusterRequest, MetadataRequest};

use super::cluster::{Client, Node};
use super::connection::CallError;
use super::errors::checked;
use super::{ClientError, Result};

/// One broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerInfo {
    pub id: i32,
    pub host: String,
    pub port: i32,
    pub rack: Option<String>,
    /// Registered, but not serving yet or any more.
    pub fenced: bool,
}

/// What a cluster says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterDescription {
    pub cluster_id: String,
    /// −1: there is none.
    pub controller: i32,
    pub brokers: Vec<BrokerInfo>,
}

/// Versions of an API that a broker serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApiRange {
    pub api_key: i16,
    pub min: i16,
    pub max: i16,
}

/// Which APIs one broker serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerVersions {
    pub broker: BrokerInfo,
    pub apis: std::result::Result<Vec<ApiRange>, String>,
}

impl Client {
    /// DescribeCluster; fenced brokers too where they are asked for.
    pub async fn describe_cluster(&mut self, fenced: bool) -> Result<ClusterDescription> {
        let build = |version| {
            let request = DescribeClusterRequest::default();
            let request = match version {
                0 => request,
                _ => request.with_endpoint_type(1),
            };
            match version {
                2.. => request.with_include_fenced_brokers(fenced),
                _ => request,
            }
        };
        let answer = self.send(Node::Any, "listNodes", build).await?;
        checked(answer.error_code, answer.error_message)?;
        let broker =
            |broker: kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker| {
                BrokerInfo {
                    id: broker.broker_id.0,
                    host: broker.host.to_string(),
                    port: broker.port,
                    rack: broker.rack.map(|rack| rack.to_string()),
                    fenced: broker.is_fenced,
                }
            };
        let mut brokers: Vec<BrokerInfo> = answer.brokers.into_iter().map(broker).collect();
        brokers.sort_unstable_by_key(|broker| broker.id);
        self.learn(&brokers);
        Ok(ClusterDescription {
            cluster_id: answer.cluster_id.to_string(),
            controller: answer.controller_id.0,
            brokers,
        })
    }

    pub(super) fn learn(&mut self, brokers: &[BrokerInfo]) {
        for broker in brokers.iter().filter(|broker| !broker.fenced) {
            let port = u16::try_from(broker.port).unwrap_or(0);
            self.brokers.insert(broker.id, (broker.host.clone(), port));
        }
    }

    /// Asks which brokers there are, and nothing else.
    pub async fn brokers(&mut self, call: &str) -> Result<Vec<BrokerInfo>> {
        let build = |_| MetadataRequest::default().with_topics(Some(Vec::new()));
        let answer = self.send(Node::Any, call, build).await?;
        let brokers = brokers_of(&answer);
        self.learn(&brokers);
        Ok(brokers)
    }

    /// What each broker of the cluster serves.
    pub async fn api_versions(&mut self) -> Result<Vec<BrokerVersions>> {
        let brokers = self.brokers("getAllBrokerVersionInfo").await?;
        let mut all = Vec::new();
        for broker in brokers {
            let apis = match self.connection(Node::Broker(broker.id)).await {
                Ok(connection) => Ok(connection.ranges()),
                Err(CallError::Final(error)) => Err(error.to_string()),
                Err(CallError::Io(error)) => Err(error.to_string()),
            };
            all.push(BrokerVersions { broker, apis });
        }
        Ok(all)
    }

    /// Fails if no bootstrap server has an address.
    pub async fn resolve_bootstrap(&self) -> Result<()> {
        for (host, port) in &self.config.bootstrap {
            if let Ok(mut addresses) = tokio::net::lookup_host((host.as_str(), *port)).await
                && addresses.next().is_some()
            {
                return Ok(());
            }
        }
        Err(ClientError::Config(
            "No resolvable bootstrap urls given in bootstrap.servers".to_owned(),
        ))
    }
}

pub(super) fn brokers_of(answer: &kafka_protocol::messages::MetadataResponse) -> Vec<BrokerInfo> {
    let brokers = answer.brokers.iter().map(|broker| BrokerInfo {
        id: broker.node_id.0,
        host: broker.host.to_string(),
        port: broker.port,
        rack: broker.rack.as_ref().map(ToString::to_string),
        fenced: false,
    });
    let mut brokers: Vec<BrokerInfo> = brokers.collect();
    brokers.sort_unstable_by_key(|broker| broker.id);
    brokers
}
