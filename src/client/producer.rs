//! An idempotent producer: batches carry its id and their sequence, so that one that is sent again is there once.

use std::collections::BTreeMap;

use kafka_protocol::messages::InitProducerIdRequest;

use super::cluster::{Client, Node};
use super::errors::checked_code;
use super::records::{Acks, OutgoingRecord, ProduceOptions, ProducedBatch, batch_of};
use super::{ClientError, Result};
use crate::record::BatchBuilder;
use crate::types::{ErrorCode, TopicPartition};

/// Writes batches, one to a partition at a time.
#[derive(Debug)]
pub struct Producer {
    options: ProduceOptions,
    retries: u32,
    /// Id and epoch; `None` for a producer that is not idempotent, or has to get one.
    identity: Option<(i64, i16)>,
    sequences: BTreeMap<TopicPartition, i32>,
}

impl Producer {
    pub fn new(options: ProduceOptions, retries: u32) -> Self {
        Self {
            options,
            retries,
            identity: None,
            sequences: BTreeMap::new(),
        }
    }

    /// Writes one batch to each of these partitions, again where that helps; the outcome of each.
    pub async fn produce(
        &mut self,
        client: &mut Client,
        batches: &BTreeMap<TopicPartition, Vec<OutgoingRecord>>,
    ) -> Result<Vec<ProducedBatch>> {
        if self.options.idempotent && self.options.acks == Acks::All && self.identity.is_none() {
            self.identity = Some(client.init_producer_id().await?);
            self.sequences.clear();
        }
        let encoded = batches.iter().map(|(partition, records)| {
            let mut builder = BatchBuilder::new().compression(self.options.compression);
            if let Some((id, epoch)) = self.identity {
                let sequence = self.sequences.get(partition).copied().unwrap_or(0);
                builder = builder.producer(id, epoch, sequence);
            }
            (
                partition.clone(),
                (records.len(), batch_of(builder, records)),
            )
        });
        let outcomes = client.produce(encoded.collect(), self.options, self.retries);
        let mut outcomes = outcomes.await?;
        for batch in &mut outcomes {
            // It had been written, and its acknowledgement was lost.
            if is_duplicate(&batch.outcome) {
                batch.outcome = Ok(-1);
            }
            match &batch.outcome {
                Ok(_) => {
                    let sequence = self.sequences.entry(batch.partition.clone()).or_default();
                    let records = i32::try_from(batch.records).unwrap_or(i32::MAX);
                    *sequence = (i64::from(*sequence) + i64::from(records))
                        .rem_euclid(1 << 31)
                        .try_into()
                        .unwrap_or(0);
                }
                // What follows would leave a gap.
                Err(_) => self.identity = None,
            }
        }
        Ok(outcomes)
    }
}

fn is_duplicate(outcome: &Result<i64>) -> bool {
    matches!(outcome, Err(error) if error.is(ErrorCode::DuplicateSequenceNumber))
}

impl Client {
    /// An id that no other producer has.
    async fn init_producer_id(&mut self) -> Result<(i64, i16)> {
        let mut attempts = self.attempts();
        loop {
            let build = |_| {
                InitProducerIdRequest::default()
                    .with_transactional_id(None)
                    .with_transaction_timeout_ms(i32::MAX)
            };
            let answer = self
                .send_up_to(Node::Any, "initProducerId", 5, build)
                .await?;
            match checked_code(answer.error_code) {
                Ok(()) => return Ok((answer.producer_id.0, answer.producer_epoch)),
                Err(error) if is_passing(&error) && attempts.again().await => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn is_passing(error: &ClientError) -> bool {
    error.is_retriable() || error.is(ErrorCode::ConcurrentTransactions)
}
