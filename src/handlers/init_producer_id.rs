//! InitProducerId: an id for an idempotent producer.
//!
//! There are no transactions yet, and a transactional id is refused with
//! TRANSACTIONAL_ID_AUTHORIZATION_FAILED: of the codes that this API may answer it is the one on which
//! every client gives up at once (librdkafka, for one, goes on asking after INVALID_REQUEST).

use kafka_protocol::messages::{self, InitProducerIdRequest, InitProducerIdResponse};

use super::{Context, RequestInfo};
use crate::types::{ErrorCode, NO_PRODUCER_ID};

pub(crate) async fn handle(
    context: &Context,
    request: &RequestInfo,
    body: InitProducerIdRequest,
) -> InitProducerIdResponse {
    if let Some(error) = refused(request.api_version, &body) {
        return failure(error);
    }
    // Without a transactional id there is no producer that a given id and epoch could be checked
    // against: it gets another id, as from Kafka.
    match context.admin.allocate_producer_id().await {
        Ok(id) => InitProducerIdResponse::default()
            .with_producer_id(messages::ProducerId(id))
            .with_producer_epoch(0),
        Err(error) => failure(match error.code {
            // What clients retry here.
            ErrorCode::RequestTimedOut | ErrorCode::KafkaStorageError => {
                ErrorCode::CoordinatorLoadInProgress
            }
            code => code,
        }),
    }
}

fn refused(version: i16, body: &InitProducerIdRequest) -> Option<ErrorCode> {
    match &body.transactional_id {
        Some(id) if id.is_empty() => return Some(ErrorCode::InvalidRequest),
        Some(_) if body.transaction_timeout_ms <= 0 => {
            return Some(ErrorCode::InvalidTransactionTimeout);
        }
        Some(_) => return Some(ErrorCode::TransactionalIdAuthorizationFailed),
        None => {}
    }
    // An id and its epoch come together.
    let half = (body.producer_id.0 == NO_PRODUCER_ID) != (body.producer_epoch == -1);
    (version >= 3 && half).then_some(ErrorCode::InvalidRequest)
}

fn failure(error: ErrorCode) -> InitProducerIdResponse {
    InitProducerIdResponse::default()
        .with_error_code(error.code())
        .with_producer_id(messages::ProducerId(NO_PRODUCER_ID))
        .with_producer_epoch(-1)
}
