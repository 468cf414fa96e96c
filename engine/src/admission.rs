//! Who may do what, and whether there is room for it now. Every request passes one [`authorize`]
//! and one [`admit`].

use alloc::string::String;

use crate::disk::DiskLevel;
use crate::rejection::Rejection;

/// The tenant of every request until credentials exist.
pub const DEFAULT_TENANT: &str = "default";

/// On whose behalf a request is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The tenant; comes from the credential, never from a body.
    pub tenant: String,
    /// The user or service within it.
    pub name: String,
}

impl Principal {
    /// Whoever connects without a credential.
    pub fn anonymous() -> Self {
        Self {
            tenant: String::from(DEFAULT_TENANT),
            name: String::from("anonymous"),
        }
    }
}

/// What a request wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<'a> {
    /// Read records or describe the topic.
    ReadTopic(&'a str),
    /// Publish to the topic.
    WriteTopic(&'a str),
    /// Create, alter or delete the topic.
    AlterTopic(&'a str),
    /// Be a member of the group, read or commit its offsets.
    UseGroup(&'a str),
    /// Describe the cluster; ask for producer ids.
    UseCluster,
}

/// Prefix of topics that the broker keeps for itself.
pub const INTERNAL_PREFIX: &str = "__";

/// Whether the principal may do this. Until access rules exist everyone of the default tenant may
/// do everything, except write to or alter the broker's own topics.
///
/// # Errors
/// The refusal that the face answers with.
pub fn authorize(principal: &Principal, action: Action<'_>) -> Result<(), Rejection> {
    if principal.tenant != DEFAULT_TENANT {
        return Err(match action {
            Action::UseGroup(_) => Rejection::GroupAuthorizationFailed,
            _ => Rejection::TopicAuthorizationFailed,
        });
    }
    match action {
        Action::WriteTopic(name) | Action::AlterTopic(name)
            if name.starts_with(INTERNAL_PREFIX) =>
        {
            Err(Rejection::InvalidTopic)
        }
        _ => Ok(()),
    }
}

/// What a request would take up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// New topics or partitions.
    Creation,
    /// A publish.
    Publish,
    /// A read, a deletion, or the groups' own bookkeeping: always let through.
    Other,
}

/// Whether there is room for this now: first no new topics or partitions, then no publishes,
/// always reads and deletion.
///
/// # Errors
/// The refusal that the face answers with.
pub fn admit(level: DiskLevel, load: Load) -> Result<(), Rejection> {
    match (level, load) {
        (DiskLevel::Low | DiskLevel::Full, Load::Creation) => Err(Rejection::PolicyViolation),
        (DiskLevel::Full, Load::Publish) => Err(Rejection::StorageFull),
        _ => Ok(()),
    }
}

/// A core's budget of bytes: frames being read, requests in work, and the tail cache.
///
/// Invariant: what is reserved is at most the limit, and what is released was reserved.
#[derive(Clone, Copy, Debug)]
pub struct ByteBudget {
    limit_bytes: usize,
    used_bytes: usize,
    refusals: u64,
}

impl ByteBudget {
    /// A budget of `limit_bytes`, unused.
    pub const fn new(limit_bytes: usize) -> Self {
        Self {
            limit_bytes,
            used_bytes: 0,
            refusals: 0,
        }
    }

    /// Takes `bytes` if they fit; a refusal is counted.
    ///
    /// # Errors
    /// [`Rejection::Overloaded`] if they do not fit now.
    pub fn reserve(&mut self, bytes: usize) -> Result<(), Rejection> {
        match self.used_bytes.checked_add(bytes) {
            Some(sum) if sum <= self.limit_bytes => {
                self.used_bytes = sum;
                Ok(())
            }
            _ => {
                self.refusals += 1;
                Err(Rejection::Overloaded)
            }
        }
    }

    /// Gives `bytes` back.
    ///
    /// # Panics
    /// If more is given back than was taken.
    pub fn release(&mut self, bytes: usize) {
        assert!(
            bytes <= self.used_bytes,
            "more bytes released than reserved"
        );
        self.used_bytes -= bytes;
    }

    /// What is taken now.
    pub const fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    /// The most that may be taken.
    pub const fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    /// How often there was no room.
    pub const fn refusals(&self) -> u64 {
        self.refusals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_disk_refuses_creation_then_publishes_and_never_reads() {
        assert!(admit(DiskLevel::Normal, Load::Creation).is_ok());
        assert!(admit(DiskLevel::Low, Load::Creation).is_err());
        assert!(admit(DiskLevel::Low, Load::Publish).is_ok());
        assert_eq!(
            admit(DiskLevel::Full, Load::Publish),
            Err(Rejection::StorageFull)
        );
        assert!(admit(DiskLevel::Full, Load::Other).is_ok());
    }

    #[test]
    fn a_budget_never_gives_more_than_it_has() {
        let mut budget = ByteBudget::new(10);
        assert!(budget.reserve(7).is_ok());
        assert_eq!(budget.reserve(4), Err(Rejection::Overloaded));
        assert_eq!(budget.reserve(usize::MAX), Err(Rejection::Overloaded));
        budget.release(7);
        assert!(budget.reserve(10).is_ok());
        assert_eq!(budget.refusals(), 2);
    }

    #[test]
    fn nobody_writes_to_the_brokers_own_topics() {
        let someone = Principal::anonymous();
        assert_eq!(
            authorize(&someone, Action::WriteTopic("__consumer_offsets")),
            Err(Rejection::InvalidTopic)
        );
        assert!(authorize(&someone, Action::ReadTopic("__consumer_offsets")).is_ok());
        let stranger = Principal {
            tenant: String::from("other"),
            name: String::new(),
        };
        assert_eq!(
            authorize(&stranger, Action::UseGroup("g")),
            Err(Rejection::GroupAuthorizationFailed)
        );
    }
}
