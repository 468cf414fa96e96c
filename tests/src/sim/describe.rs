//! Lines of a trace: what matters of requests and answers, without their bytes.

use bytes::Bytes;
use corelog_engine::disk::{DiskReply, DiskRequest, DiskResult, OperationId};
use corelog_engine::metadata::MetadataRecord;
use corelog_engine::request::{Answer, Request, Response};

pub(super) fn request(operation: OperationId, request: &DiskRequest) -> String {
    let what = match request {
        DiskRequest::Write { file, position, .. } => {
            format!(
                "write {file} at {position}, {} bytes",
                request.write_bytes()
            )
        }
        DiskRequest::Replace { file, content } => {
            format!("replace {file} by {} bytes", content.len())
        }
        other => format!("{other:?}"),
    };
    format!("disk {}: {what}", operation.0)
}

pub(super) fn result(operation: OperationId, result: &DiskResult) -> String {
    let what = match result {
        Ok(DiskReply::Bytes(bytes)) => format!("{} bytes", bytes.len()),
        other => format!("{other:?}"),
    };
    format!("disk {} done: {what}", operation.0)
}

pub(super) fn record(record: &MetadataRecord) -> String {
    match record {
        MetadataRecord::TopicCreated(created) => format!(
            "topic {} created as {}, {} partitions",
            created.name,
            created.topic,
            created.partitions.len()
        ),
        other => format!("{other:?}"),
    }
}

pub(super) fn asked(request: &Request) -> String {
    match request {
        Request::Publish(publish) => {
            let batches = publish.batches.batches().iter().map(|batch| {
                let header = &batch.header;
                let bytes = batch.end - batch.start;
                let records = header.last_offset_delta + 1;
                let (id, epoch) = (header.producer_id, header.producer_epoch);
                let sequence = header.base_sequence;
                format!("({records} in {bytes} bytes, producer {id}/{epoch}/{sequence})")
            });
            let batches: Vec<String> = batches.collect();
            format!("publish to {}: {}", publish.partition, batches.join(" "))
        }
        other => format!("{other:?}"),
    }
}

pub(super) fn answer(answer: &Answer) -> String {
    match answer {
        Ok(Response::Fetched(parts)) => {
            let parts = parts.iter().map(|part| match &part.result {
                Ok(fetched) => format!(
                    "({}: {} bytes, {}..{})",
                    part.partition,
                    fetched.batches.iter().map(Bytes::len).sum::<usize>(),
                    fetched.log_start,
                    fetched.watermark
                ),
                Err(refusal) => format!("({}: {refusal:?})", part.partition),
            });
            let parts: Vec<String> = parts.collect();
            format!("fetched {}", parts.join(" "))
        }
        other => format!("{other:?}"),
    }
}
