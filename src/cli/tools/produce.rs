//! Writing records: each to its partition, in batches.

use std::collections::BTreeMap;

use crate::client::{Client, ClientError, OutgoingRecord, ProducedBatch, Producer, partition_of};
use crate::types::TopicPartition;

/// What a record costs beside its key and value.
const OVERHEAD_BYTES: usize = 70;

/// Gathers records of one topic and writes them.
#[derive(Debug)]
pub(crate) struct Sender {
    client: Client,
    producer: Producer,
    topic: String,
    partitions: i32,
    /// Where records without a key go until the next batch.
    sticky: i32,
    /// All records go there.
    fixed: Option<i32>,
    batch_bytes: usize,
    gathered: BTreeMap<TopicPartition, (usize, Vec<OutgoingRecord>)>,
}

impl Sender {
    /// Finds the topic, which is made if the broker does that by itself.
    pub(crate) async fn open(
        mut client: Client,
        producer: Producer,
        topic: &str,
        batch_bytes: usize,
        fixed: Option<i32>,
    ) -> Result<Self, ClientError> {
        let partitions = partitions_of(&mut client, topic).await?;
        let random = uuid::Uuid::new_v4().as_u128() & 0x7fff_ffff;
        Ok(Self {
            client,
            producer,
            topic: topic.to_owned(),
            sticky: i32::try_from(random).unwrap_or(0) % partitions.max(1),
            partitions,
            fixed,
            batch_bytes,
            gathered: BTreeMap::new(),
        })
    }

    /// Takes a record. True if a batch is full: it is time to flush.
    pub(crate) fn add(&mut self, record: OutgoingRecord) -> bool {
        let number = match (self.fixed, &record.key) {
            (Some(fixed), _) => fixed,
            (None, Some(key)) => partition_of(key, self.partitions),
            (None, None) => self.sticky,
        };
        let bytes = |field: &Option<Vec<u8>>| field.as_ref().map_or(0, Vec::len);
        let size = OVERHEAD_BYTES + bytes(&record.key) + bytes(&record.value);
        let partition = TopicPartition::new(self.topic.as_str(), number);
        let (gathered, records) = self.gathered.entry(partition).or_default();
        *gathered += size;
        records.push(record);
        *gathered >= self.batch_bytes
    }

    /// Writes what has been taken; the outcome of each batch, and the records that could not be written.
    pub(crate) async fn flush(
        &mut self,
    ) -> Result<Vec<(ProducedBatch, Vec<OutgoingRecord>)>, ClientError> {
        if self.gathered.is_empty() {
            return Ok(Vec::new());
        }
        let gathered = std::mem::take(&mut self.gathered);
        let mut batches: BTreeMap<TopicPartition, Vec<OutgoingRecord>> = gathered
            .into_iter()
            .map(|(partition, (_, records))| (partition, records))
            .collect();
        self.sticky = (self.sticky + 1) % self.partitions.max(1);
        let outcomes = self.producer.produce(&mut self.client, &batches).await?;
        let with_records = outcomes.into_iter().map(|batch| {
            let records = batches.remove(&batch.partition).unwrap_or_default();
            (batch, records)
        });
        Ok(with_records.collect())
    }
}

async fn partitions_of(client: &mut Client, topic: &str) -> Result<i32, ClientError> {
    let topics = [topic.to_owned()];
    let patience = client.config().api_timeout;
    let located = tokio::time::timeout(patience, async {
        loop {
            let located = client.locate(&topics, true).await?.remove(topic);
            match located {
                Some(Ok(found)) if !found.partitions.is_empty() => return Ok(found),
                Some(Err(error)) if error.is(crate::types::ErrorCode::InvalidTopicException) => {
                    return Err(error);
                }
                _ => tokio::time::sleep(std::time::Duration::from_millis(100)).await,
            }
        }
    });
    match located.await {
        Ok(found) => Ok(i32::try_from(found?.partitions.len()).unwrap_or(i32::MAX)),
        Err(_) => Err(ClientError::TimedOut(format!(
            "Topic {topic} not present in metadata after {} ms.",
            patience.as_millis()
        ))),
    }
}
