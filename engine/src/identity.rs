//! Distinct types for what must not be mixed up: offsets, positions, epochs, generations, ids.

use core::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl $name {
            /// The smallest value, zero.
            pub const ZERO: Self = Self(0);
            /// The bare number.
            pub const fn get(self) -> $inner {
                self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

macro_rules! random_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; 16]);

        impl $name {
            /// All bits zero: no id.
            pub const ZERO: Self = Self([0; 16]);
            /// The 16 bytes, big-endian.
            pub const fn bytes(&self) -> &[u8; 16] {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({self})", stringify!($name))
            }
        }
    };
}

number!(
    /// Counts records in one partition's log. Ends are exclusive. At most `i64::MAX`.
    Offset(u64)
);
number!(
    /// Counts bytes in one file.
    Position(u64)
);
number!(
    /// Rises by one or more for every change of a partition's leader or voters.
    LeaderEpoch(u32)
);
number!(
    /// A partition's number within its topic.
    PartitionIndex(u32)
);
number!(
    /// A broker's number within its cluster.
    BrokerId(u32)
);
number!(
    /// A core's number within its broker.
    CoreIndex(u16)
);
number!(
    /// A producer known to the cluster. Never negative: "no producer id" is `None`.
    ProducerId(u64)
);
number!(
    /// Fences older incarnations of one producer id. At most `i16::MAX`.
    ProducerEpoch(u16)
);
number!(
    /// Counts a producer's records in one partition; wraps to zero after `i32::MAX`.
    Sequence(u32)
);
number!(
    /// Rises with every rebalance of a group; a member of an older one is refused.
    Generation(u32)
);

random_id!(
    /// A topic's incarnation. A topic deleted and made again under the same name has another.
    TopicId
);
random_id!(
    /// Made with a log on a disk, and gone with that disk: the same broker with another log id is
    /// another replica.
    LogId
);
random_id!(
    /// A cluster; brokers of another one are refused.
    ClusterId
);
random_id!(
    /// One start of one broker process. A leader that restarts has lost office.
    ProcessId
);

impl Offset {
    /// The offset from a signed wire field; `None` if negative.
    pub fn from_wire(value: i64) -> Option<Self> {
        u64::try_from(value).ok().map(Self)
    }

    /// The signed wire form.
    ///
    /// # Panics
    /// If the offset is above `i64::MAX`, which no log reaches.
    pub fn to_wire(self) -> i64 {
        assert!(self.0 <= i64::MAX as u64, "offset beyond the wire's range");
        self.0 as i64
    }

    /// This offset moved on by `count` records.
    ///
    /// # Panics
    /// If the result leaves the range of offsets.
    #[must_use]
    pub fn plus(self, count: u64) -> Self {
        match self.0.checked_add(count) {
            Some(sum) if sum <= i64::MAX as u64 => Self(sum),
            _ => panic_offset_range(),
        }
    }
}

#[allow(clippy::panic)]
fn panic_offset_range() -> ! {
    panic!("offset beyond the wire's range")
}

impl Position {
    /// This position moved on by `bytes`.
    ///
    /// # Panics
    /// On overflow.
    #[must_use]
    pub fn plus(self, bytes: u64) -> Self {
        match self.0.checked_add(bytes) {
            Some(sum) => Self(sum),
            None => panic_offset_range(),
        }
    }
}

impl LeaderEpoch {
    /// The signed wire form.
    ///
    /// # Panics
    /// If the epoch is above `i32::MAX`.
    pub fn to_wire(self) -> i32 {
        assert!(
            self.0 <= i32::MAX as u32,
            "leader epoch beyond the wire's range"
        );
        self.0 as i32
    }

    /// The epoch from a signed wire field; `None` if negative (meaning "unknown").
    pub fn from_wire(value: i32) -> Option<Self> {
        u32::try_from(value).ok().map(Self)
    }
}

impl ProducerEpoch {
    /// The highest epoch of one producer id; beyond it a new id is given.
    pub const MAX: Self = Self(i16::MAX as u16);
}

impl Sequence {
    /// The sequence `count` records later; wraps after `i32::MAX`, as Kafka's does.
    #[must_use]
    pub fn plus(self, count: u32) -> Self {
        Self(((u64::from(self.0) + u64::from(count)) % (1 << 31)) as u32)
    }
}

/// One partition of one incarnation of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionId {
    /// The topic's incarnation.
    pub topic: TopicId,
    /// The partition within it.
    pub partition: PartitionIndex,
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.topic, self.partition)
    }
}

/// A producer's identity: id and incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Producer {
    /// Who.
    pub id: ProducerId,
    /// Which incarnation.
    pub epoch: ProducerEpoch,
}
