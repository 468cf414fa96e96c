//! One core on disks in memory, one for each partition, and a control plane that is never late.

use std::collections::BTreeMap;
use std::string::{String, ToString};
use std::vec::Vec;

use bytes::Bytes;
use corelog_batch::{BatchBuilder, BatchOptions};

use crate::core_state::{CoreSettings, CoreState};
use crate::disk::{LogFile, OperationId};
use crate::effect::{Effect, Effects, Event, Report};
use crate::identity::{
    BrokerId, CoreIndex, LogId, Offset, PartitionId, PartitionIndex, ProcessId, TopicId,
};
use crate::log::tests::disk::Disk;
use crate::metadata::decisions::{BrokerStart, begin_log, start_broker};
use crate::metadata::{
    DEFAULT_TENANT, Image, MetadataRecord, OFFSETS_TOPIC, PartitionAssignment, Partitioner,
    ReplicaAssignment, TopicCreated, TopicSettings,
};
use crate::publish::VerifiedBatches;
use crate::rejection::Rejection;
use crate::request::{
    Answer, Commit, CommittedOffset, Fetch, FetchPartition, GroupAction, GroupRequest,
    GroupResponse, OffsetToCommit, OffsetsWanted, Publish, Published, Request, RequestId, Response,
};
use crate::time::{Monotonic, Now, Wall};

const BROKER: BrokerId = BrokerId(1);
const CORE: CoreIndex = CoreIndex(0);

pub const OFFSETS: TopicId = TopicId([1; 16]);
pub const ORDERS: TopicId = TopicId([2; 16]);
pub const BILLS: TopicId = TopicId([3; 16]);

pub fn partition(topic: TopicId, index: u32) -> PartitionId {
    PartitionId {
        topic,
        partition: PartitionIndex(index),
    }
}

pub struct Broker {
    pub core: CoreState,
    pub disks: BTreeMap<PartitionId, Disk>,
    pub reports: Vec<Report>,
    settings: CoreSettings,
    image: Image,
    operations: BTreeMap<OperationId, PartitionId>,
    answers: BTreeMap<RequestId, Answer>,
    requests: u64,
    now_ms: u64,
    processes: u8,
}

impl Broker {
    /// A broker with the offsets topic, `orders` and `bills`, of two partitions each.
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut CoreSettings)) -> Self {
        let mut settings = CoreSettings::new(BROKER, CORE);
        change(&mut settings);
        let mut broker = Self {
            core: CoreState::new(
                settings.clone(),
                Image::new(),
                Now::default(),
                &mut Vec::new(),
            ),
            disks: BTreeMap::new(),
            reports: Vec::new(),
            settings,
            image: Image::new(),
            operations: BTreeMap::new(),
            answers: BTreeMap::new(),
            requests: 0,
            now_ms: 1_000_000,
            processes: 0,
        };
        broker.start_process();
        for (topic, name) in [
            (OFFSETS, OFFSETS_TOPIC),
            (ORDERS, "orders"),
            (BILLS, "bills"),
        ] {
            let record = broker.topic(topic, name);
            broker.image.apply(&record).unwrap();
        }
        broker.start();
        broker
    }

    fn topic(&self, topic: TopicId, name: &str) -> MetadataRecord {
        let assignment = |index: u8| PartitionAssignment {
            leader: BROKER,
            replicas: std::vec![ReplicaAssignment {
                broker: BROKER,
                log_id: LogId([topic.0[0] * 16 + index; 16]),
                core: CORE,
            }],
        };
        MetadataRecord::TopicCreated(TopicCreated {
            topic,
            tenant: String::from(DEFAULT_TENANT),
            name: name.to_string(),
            partitioner: Partitioner::Murmur2,
            slots: 64,
            internal: name == OFFSETS_TOPIC,
            settings: TopicSettings::default(),
            partitions: (0..2).map(assignment).collect(),
        })
    }

    fn start_process(&mut self) {
        self.processes += 1;
        let start = BrokerStart {
            broker: BROKER,
            process: ProcessId([self.processes; 16]),
            zone: String::from("a"),
            cores: 1,
            addresses: Vec::new(),
        };
        for record in start_broker(&self.image, &start).unwrap() {
            self.image.apply(&record).unwrap();
        }
    }

    fn start(&mut self) {
        let mut effects = Effects::new();
        let (settings, image) = (self.settings.clone(), self.image.clone());
        self.core = CoreState::new(settings, image, self.now(), &mut effects);
        self.perform(effects);
        self.run();
    }

    /// The process ends; what it had asked of the disk is not done. `between` sees the disks.
    pub fn restart(&mut self, between: impl FnOnce(&mut Self)) {
        self.operations.clear();
        for disk in self.disks.values_mut() {
            disk.waiting.clear();
        }
        self.reports.clear();
        between(self);
        self.start_process();
        self.start();
    }

    /// As [`Broker::restart`], after an orderly stop.
    pub fn stop_and_restart(&mut self, between: impl FnOnce(&mut Self)) {
        self.step(Event::Stop);
        self.run();
        assert!(self.core.is_stopped());
        self.restart(between);
    }

    pub fn now(&self) -> Now {
        Now {
            monotonic: Monotonic(self.now_ms * 1_000),
            wall: Wall(self.now_ms),
        }
    }

    fn step(&mut self, event: Event) {
        let mut effects = Effects::new();
        self.core.step(event, self.now(), &mut effects);
        self.perform(effects);
    }

    fn perform(&mut self, effects: Effects) {
        for effect in effects {
            match effect {
                Effect::Disk {
                    operation,
                    ref request,
                    ..
                } => {
                    let owner = request.partition();
                    self.operations.insert(operation, owner);
                    let mut one = std::vec![effect];
                    self.disks.entry(owner).or_default().take(&mut one);
                }
                Effect::Reply { id, answer } => {
                    assert!(self.answers.insert(id, answer).is_none());
                }
                Effect::Propose(MetadataRecord::LogBegun { partition, log_id }) => {
                    let begun = begin_log(&self.image, partition, log_id).unwrap();
                    begun.into_iter().for_each(|record| self.commit(record));
                }
                Effect::Propose(record) => self.commit(record),
                Effect::Report(report) => self.reports.push(report),
            }
        }
    }

    fn commit(&mut self, record: MetadataRecord) {
        self.image.apply(&record).unwrap();
        self.step(Event::Metadata(record));
    }

    /// Deletes a topic; what the disk has to do for it is left waiting.
    pub fn delete(&mut self, topic: TopicId) {
        self.commit(MetadataRecord::TopicDeleted { topic });
    }

    /// Deletes a topic in the metadata alone, as if the core had not heard of it yet.
    pub fn delete_unheard(&mut self, topic: TopicId) {
        let record = MetadataRecord::TopicDeleted { topic };
        self.image.apply(&record).unwrap();
    }

    /// Completes everything until nothing is asked for.
    pub fn run(&mut self) {
        for _ in 0..100_000 {
            let Some((owner, disk)) = self
                .disks
                .iter_mut()
                .find(|(_, disk)| !disk.waiting.is_empty())
            else {
                return;
            };
            let owner = *owner;
            let (operation, result) = disk.complete(0);
            assert_eq!(self.operations.remove(&operation), Some(owner));
            self.step(Event::Disk { operation, result });
        }
        panic!("a core that never rests");
    }

    /// So much time passes, with a tick now and then.
    pub fn pass_ms(&mut self, ms: u64) {
        let until = self.now_ms + ms;
        while self.now_ms < until {
            self.now_ms += 200;
            self.step(Event::Tick);
            self.run();
        }
    }

    pub fn send(&mut self, request: Request) -> RequestId {
        self.requests += 1;
        let id = RequestId(self.requests);
        self.step(Event::Request { id, request });
        id
    }

    pub fn answer(&mut self, id: RequestId) -> Option<Answer> {
        self.answers.remove(&id)
    }

    pub fn ask(&mut self, request: Request) -> Answer {
        let id = self.send(request);
        self.run();
        self.answer(id).unwrap()
    }

    /// Publishes one record of producer 7, epoch 0.
    pub fn publish(&mut self, to: PartitionId, sequence: i32) -> Result<Published, Rejection> {
        let mut builder = BatchBuilder::new(BatchOptions {
            producer_id: 7,
            producer_epoch: 0,
            base_sequence: sequence,
            ..BatchOptions::default()
        });
        builder.append(1_000, None, Some(b"value"), &[]).unwrap();
        let batch: Bytes = builder.build().unwrap().freeze();
        let answer = self.ask(Request::Publish(Publish {
            partition: to,
            batches: VerifiedBatches::own(batch),
            leader_epoch: None,
            deadline: Monotonic(u64::MAX),
        }));
        match answer? {
            Response::Published(published) => Ok(published),
            other => panic!("{other:?}"),
        }
    }

    /// Fetches from `offset`, and says how many bytes came.
    pub fn fetch(&mut self, from: PartitionId, offset: u64) -> Result<usize, Rejection> {
        let answer = self.ask(Request::Fetch(Fetch {
            partitions: std::vec![FetchPartition {
                partition: from,
                offset: Offset(offset),
                bytes_max: 1 << 20,
                leader_epoch: None,
                last_fetched_epoch: None,
            }],
            bytes_min: 0,
            bytes_max: 1 << 20,
            wait_until: Monotonic(0),
        }));
        match answer? {
            Response::Fetched(mut parts) => match parts.remove(0).result {
                Ok(fetched) => Ok(fetched.batches.iter().map(Bytes::len).sum()),
                Err(refusal) => Err(refusal.rejection),
            },
            other => panic!("{other:?}"),
        }
    }

    fn group(&mut self, coordinator: u32, action: GroupAction) -> Result<GroupResponse, Rejection> {
        let answer = self.ask(Request::Group(GroupRequest {
            coordinator: partition(OFFSETS, coordinator),
            group: String::from("readers"),
            action,
        }));
        match answer? {
            Response::Group(response) => Ok(response),
            other => panic!("{other:?}"),
        }
    }

    /// Commits an offset of `of` in the group that this partition of the offsets topic keeps.
    pub fn commit_offset(&mut self, coordinator: u32, of: PartitionId) -> Result<(), Rejection> {
        self.commit_noted(coordinator, of, "")
    }

    /// As [`Broker::commit_offset`], with a client's note.
    pub fn commit_noted(
        &mut self,
        coordinator: u32,
        of: PartitionId,
        note: &str,
    ) -> Result<(), Rejection> {
        let commit = Commit {
            fence: None,
            offsets: std::vec![OffsetToCommit {
                partition: of,
                offset: Offset(1),
                leader_epoch: None,
                metadata: note.to_string(),
            }],
        };
        match self.group(coordinator, GroupAction::Commit(commit))? {
            GroupResponse::Committed(each) => each[0].1,
            other => panic!("{other:?}"),
        }
    }

    /// Removes the group.
    pub fn delete_group(&mut self, coordinator: u32) -> Result<(), Rejection> {
        self.group(coordinator, GroupAction::Delete).map(drop)
    }

    /// Topics of which the group has offsets.
    pub fn committed(&mut self, coordinator: u32) -> Result<Vec<TopicId>, Rejection> {
        let wanted = OffsetsWanted {
            fence: None,
            partitions: None,
        };
        match self.group(coordinator, GroupAction::Committed(wanted))? {
            GroupResponse::Offsets(offsets) => {
                let topic = |offset: CommittedOffset| offset.partition.topic;
                Ok(offsets.into_iter().map(topic).collect())
            }
            other => panic!("{other:?}"),
        }
    }

    /// Flips a bit of a file.
    pub fn damage(&mut self, of: PartitionId, file: LogFile, at: usize) {
        self.disks.get_mut(&of).unwrap().file_mut(file).bytes[at] ^= 1;
    }

    /// The files of a partition's folder; `None` where there is no folder.
    pub fn files(&self, of: PartitionId) -> Option<Vec<LogFile>> {
        let files = self.disks.get(&of)?.files.as_ref()?;
        Some(files.keys().copied().collect())
    }

    pub fn producers_file(&self, of: PartitionId) -> LogFile {
        let files = self.files(of).unwrap();
        let is_snapshot = |file: &&LogFile| matches!(file, LogFile::Producers(_));
        *files.iter().find(is_snapshot).unwrap()
    }
}
