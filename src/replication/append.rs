//! Appending to a partition that is led here.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use super::partition::{OpenPartition, Partition};
use super::waiters::Ticket;
use crate::config::TopicConfig;
use crate::log::{AppendError, Appended};
use crate::record::{
    BATCH_HEADER_BYTES, BatchHeader, InvalidBatch, ValidBatch, ValidationRules, validate,
    validate_within,
};
use crate::types::rules::{Rule, holds};
use crate::types::{ErrorCode, LeaderEpoch, NO_EPOCH, NO_OFFSET, Offset};

/// What a producer waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acks {
    None,
    Leader,
    All,
}

/// How records are appended.
#[derive(Debug, Clone, Copy)]
pub struct AppendOptions {
    pub acks: Acks,
    /// Version of the Produce request; `i16::MAX` for appends of the broker itself.
    pub produce_version: i16,
    /// The broker's own records: the internal topics may be written, control batches are allowed.
    pub internal: bool,
    /// R15: the leader epoch in which that was decided; −1: of no matter. FENCED_LEADER_EPOCH in a later.
    pub leader_epoch: LeaderEpoch,
}

/// Why nothing was appended, as Produce answers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppendFailure {
    pub error: ErrorCode,
    pub message: Option<String>,
    pub record_errors: Vec<(i32, Option<String>)>,
    pub log_start_offset: Offset,
}

impl From<ErrorCode> for AppendFailure {
    fn from(error: ErrorCode) -> Self {
        Self {
            error,
            message: None,
            record_errors: Vec::new(),
            log_start_offset: NO_OFFSET,
        }
    }
}

/// When an append is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Until {
    /// The batch is in the log.
    Appended,
    /// The high watermark has passed the batch. A duplicate waits for that of its first write.
    Committed,
}

/// Compressed batches above this are checked on the partition's lane: inflating a megabyte on a
/// runtime thread would hold up every connection that it serves.
const INLINE_COMPRESSED_BYTES_MAX: usize = 128 << 10;
/// The same for what a small batch turns out to hold.
const INLINE_DECOMPRESSED_BYTES_MAX: usize = 1 << 20;

/// The first version of Produce that may carry Zstandard (KIP-110).
const ZSTD_PRODUCE_VERSION: i16 = 7;

/// A batch to be appended, checked already or to be checked first.
#[derive(Debug)]
enum Candidate {
    Valid(ValidBatch),
    Unchecked(Bytes),
}

impl Partition {
    /// Validates and appends one batch. The order of appends is the order of calls, not of polls.
    /// Resolves when the batch is in the log (not yet acknowledged).
    pub fn append(
        self: &Arc<Self>,
        records: Bytes,
        options: AppendOptions,
    ) -> BoxFuture<'static, Result<Appended, AppendFailure>> {
        Box::pin(self.enqueue(records, options, Until::Appended, false))
    }

    /// Like [`Self::append`], but resolves when the batch is acknowledged as `options.acks` demands:
    /// for `All` when the high watermark has passed it. Has no deadline; the caller brings it.
    pub fn produce(self: &Arc<Self>, records: Bytes, options: AppendOptions) -> PendingAppend {
        let until = match options.acks {
            Acks::None | Acks::Leader => Until::Appended,
            Acks::All => Until::Committed,
        };
        self.enqueue(records, options, until, true)
    }

    /// `here`: the caller's thread may be the one that writes.
    fn enqueue(
        self: &Arc<Self>,
        records: Bytes,
        options: AppendOptions,
        until: Until,
        here: bool,
    ) -> PendingAppend {
        self.metrics.total_produce_requests.inc();
        let bytes = records.len();
        let candidate = match self.admit(records, options) {
            Ok(candidate) => candidate,
            Err(failure) => {
                self.count_failure(&failure, bytes);
                return PendingAppend::failed(failure);
            }
        };
        let here = here && matches!(candidate, Candidate::Valid(_));
        let (reply, answer) = oneshot::channel();
        let ticket = self.shared.ticket();
        let work = move |partition: &Arc<Self>| {
            let appended = partition
                .open_here()
                .map_err(AppendFailure::from)
                .and_then(|log| OpenPartition { partition, log }.append(candidate, options));
            match appended {
                Ok(appended) if until == Until::Committed => {
                    partition.answer_when_committed(appended, ticket, reply);
                }
                outcome => {
                    if let Err(failure) = &outcome {
                        partition.count_failure(failure, bytes);
                    }
                    // A closed connection does not listen.
                    drop(reply.send(outcome));
                }
            }
        };
        match here {
            true => self.append_on_lane(bytes, work),
            false => self.on_lane(work),
        }
        PendingAppend {
            state: Pending::Waiting {
                answer,
                ticket,
                partition: (until == Until::Committed).then(|| Arc::clone(self)),
            },
        }
    }

    /// Kafka counts as failed what a client could not expect.
    fn count_failure(&self, failure: &AppendFailure, bytes: usize) {
        match failure.error {
            ErrorCode::MessageTooLarge | ErrorCode::RecordListTooLarge => {
                self.metrics.bytes_rejected.add(bytes as u64);
            }
            ErrorCode::UnknownTopicOrPartition
            | ErrorCode::NotLeaderOrFollower
            | ErrorCode::NotEnoughReplicas
            | ErrorCode::CorruptMessage
            | ErrorCode::KafkaStorageError => {}
            _ => self.metrics.failed_produce_requests.inc(),
        }
    }

    /// What can be refused without the log.
    fn admit(&self, records: Bytes, options: AppendOptions) -> Result<Candidate, AppendFailure> {
        let config = match self.check_may_append(options) {
            Ok((config, _)) => config,
            // The lane knows whether it is there already.
            Err(failure) if is_too_alone(&failure) && is_idempotent(&records) => self.config(),
            Err(failure) => return Err(failure),
        };
        if !is_compressed(&records) {
            let checked = self.check(&records, &config, options, validate);
            return checked.map(Candidate::Valid);
        }
        if records.len() > INLINE_COMPRESSED_BYTES_MAX {
            return Ok(Candidate::Unchecked(records));
        }
        let briefly = |records: &Bytes, rules: &ValidationRules<'_>| {
            validate_within(records, rules, INLINE_DECOMPRESSED_BYTES_MAX)
        };
        match self.check(&records, &config, options, briefly) {
            // Whether it is too large for the topic too is found out on the lane.
            Err(failure) if failure.error == ErrorCode::MessageTooLarge => {
                Ok(Candidate::Unchecked(records))
            }
            checked => checked.map(Candidate::Valid),
        }
    }

    fn check_may_append(
        &self,
        options: AppendOptions,
    ) -> Result<(Arc<TopicConfig>, LeaderEpoch), AppendFailure> {
        let state = self.state.lock();
        state.check_leader(match holds(Rule::R15) {
            true => options.leader_epoch,
            false => NO_EPOCH,
        })?;
        match options.acks {
            Acks::All if !state.has_min_isr() => {
                return Err(ErrorCode::NotEnoughReplicas.into());
            }
            Acks::None | Acks::Leader if !state.may_append_alone(&self.shared) => {
                return Err(ErrorCode::NotLeaderOrFollower.into());
            }
            _ => {}
        }
        Ok((Arc::clone(&state.config), state.role.leader_epoch))
    }

    fn check(
        &self,
        records: &Bytes,
        config: &TopicConfig,
        options: AppendOptions,
        validate: impl Fn(&Bytes, &ValidationRules<'_>) -> Result<ValidBatch, InvalidBatch>,
    ) -> Result<ValidBatch, AppendFailure> {
        let rules = ValidationRules {
            partition: self.topic_partition(),
            topic: config,
            now_ms: self.shared.clock.wall_ms(),
            produce_version: options.produce_version,
            internal: options.internal,
        };
        let batch = validate(records, &rules).map_err(|refused| self.refused(refused, options))?;
        if batch.payload.as_ptr() != records[BATCH_HEADER_BYTES..].as_ptr() {
            let records = u64::try_from(batch.header.record_count).unwrap_or(0);
            self.metrics.produce_message_conversions.add(records);
        }
        Ok(batch)
    }

    fn refused(&self, refused: InvalidBatch, options: AppendOptions) -> AppendFailure {
        // Up to v6 Kafka looks for codecs that came later before it looks for the partition.
        let early = refused.error == ErrorCode::UnsupportedCompressionType
            && options.produce_version < ZSTD_PRODUCE_VERSION;
        let log_start_offset = if refused.names_log_start && !early {
            self.log_offsets().map_or(0, |(start, _)| start)
        } else {
            NO_OFFSET
        };
        AppendFailure {
            error: refused.error,
            message: refused.message,
            record_errors: refused.record_errors,
            log_start_offset,
        }
    }
}

impl OpenPartition<'_> {
    fn append(
        &self,
        candidate: Candidate,
        options: AppendOptions,
    ) -> Result<Appended, AppendFailure> {
        let partition = self.partition;
        partition.term_begins_at(self.log.log_end_offset());
        // Again: deletion and a change of leader may have come between the call and the lane.
        let allowed = partition.check_may_append(options);
        let config = match &allowed {
            Ok((config, _)) => Arc::clone(config),
            Err(failure) if is_too_alone(failure) => partition.config(),
            Err(failure) => return Err(failure.clone()),
        };
        let batch = match candidate {
            Candidate::Valid(batch) => batch,
            Candidate::Unchecked(records) => {
                partition.check(&records, &config, options, validate)?
            }
        };
        // What is asked for a second time is there, however few replicas are: it waits for the high
        // watermark as it did the first time. Kafka refuses it, and an idempotent producer that has sent
        // more behind it finds those out of order then.
        let leader_epoch = match allowed {
            Ok((_, leader_epoch)) => leader_epoch,
            Err(failure) => return self.log.duplicate_of(&batch.header).ok_or(failure),
        };
        let now_ms = partition.shared.clock.wall_ms();
        let bytes = (BATCH_HEADER_BYTES + batch.payload.len()) as u64;
        let messages = u64::try_from(batch.header.record_count).unwrap_or(0);
        match self.log.append(batch, leader_epoch, now_ms) {
            Ok(appended) => {
                if !appended.duplicate {
                    partition.metrics.messages_in.add(messages);
                    partition.metrics.bytes_in.add(bytes);
                    // Whoever is parked on the partition waits for the flush, or for what follows it.
                    if partition.advance() || options.acks == Acks::All {
                        self.log.flush_soon();
                    }
                }
                Ok(appended)
            }
            Err(AppendError::Log(error)) => {
                Err(partition.storage_error("append to the log", &error).into())
            }
            Err(AppendError::Refused(refused)) => Err(AppendFailure {
                log_start_offset: match refused.code {
                    ErrorCode::RecordListTooLarge | ErrorCode::KafkaStorageError => NO_OFFSET,
                    _ => self.log.log_start_offset(),
                },
                error: refused.code,
                message: refused.message,
                record_errors: Vec::new(),
            }),
        }
    }
}

/// Too few replicas are in sync.
fn is_too_alone(failure: &AppendFailure) -> bool {
    failure.error == ErrorCode::NotEnoughReplicas
}

fn is_idempotent(records: &[u8]) -> bool {
    BatchHeader::parse(records).is_ok_and(|header| header.producer_id >= 0)
}

/// Bits 0–2 of the attributes, which stand at byte 21 of a batch.
fn is_compressed(records: &[u8]) -> bool {
    records.get(22).is_some_and(|low| low & 0x07 != 0)
}

/// An append on its way. Dropping it does not undo the append.
#[derive(Debug)]
pub struct PendingAppend {
    state: Pending,
}

#[derive(Debug)]
enum Pending {
    Done(Option<AppendFailure>),
    Waiting {
        answer: oneshot::Receiver<Result<Appended, AppendFailure>>,
        ticket: Ticket,
        /// Where it may be parked, to be forgotten when nobody waits any more.
        partition: Option<Arc<Partition>>,
    },
}

impl PendingAppend {
    fn failed(failure: AppendFailure) -> Self {
        Self {
            state: Pending::Done(Some(failure)),
        }
    }

    /// Ends the wait for an acknowledgement. What is told of a batch that is in the log all the same.
    pub fn give_up(mut self) -> Option<Appended> {
        let Pending::Waiting {
            answer, partition, ..
        } = &mut self.state
        else {
            return None;
        };
        // First closed, then forgotten: the lane parks nobody that is closed.
        answer.close();
        let partition = partition.take()?;
        if let Ok(Ok(appended)) = answer.try_recv() {
            return Some(appended);
        }
        partition.forget(&self)
    }

    pub(super) fn ticket(&self) -> Ticket {
        match &self.state {
            Pending::Done(_) => Ticket::MAX,
            Pending::Waiting { ticket, .. } => *ticket,
        }
    }
}

impl Future for PendingAppend {
    type Output = Result<Appended, AppendFailure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = match &mut self.state {
            Pending::Done(failure) => Err(failure
                .take()
                .unwrap_or_else(|| ErrorCode::UnknownServerError.into())),
            Pending::Waiting { answer, .. } => match Pin::new(answer).poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(outcome)) => outcome,
                // The lane dropped the job: its disk stalls.
                Poll::Ready(Err(_)) => Err(ErrorCode::KafkaStorageError.into()),
            },
        };
        self.state = Pending::Done(None);
        Poll::Ready(outcome)
    }
}

impl Drop for PendingAppend {
    fn drop(&mut self) {
        if let Pending::Waiting {
            answer, partition, ..
        } = &mut self.state
        {
            // First closed, then forgotten: the lane parks nobody that is closed.
            answer.close();
            if let Some(partition) = partition.take() {
                partition.forget(self);
            }
        }
    }
}
