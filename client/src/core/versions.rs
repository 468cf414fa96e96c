//! Which version of each request this client and a broker have in common.

use corelog_wire::{ApiKey, ApiVersionsResponse};

use super::connection::ConnectionError;

/// Highest version that this client writes. Those that name topics by id (Produce and Fetch 13,
/// OffsetCommit 10) and those that carry lists where one element is meant (FindCoordinator 4,
/// OffsetFetch 8, LeaveGroup 3, DeleteTopics 6) gain it nothing.
const fn version_max(api: ApiKey) -> i16 {
    match api {
        ApiKey::Produce | ApiKey::Fetch => 12,
        ApiKey::OffsetCommit => 9,
        ApiKey::OffsetFetch => 7,
        ApiKey::FindCoordinator => 3,
        ApiKey::LeaveGroup => 2,
        ApiKey::DeleteTopics => 5,
        api => api.versions().max,
    }
}

/// The versions that a broker said it serves (KIP-35).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServedVersions {
    /// Key, lowest and highest version.
    ranges: Vec<(i16, i16, i16)>,
}

impl ServedVersions {
    /// What the broker's answer says.
    pub fn from_response(response: &ApiVersionsResponse) -> Self {
        let ranges = response
            .api_keys
            .iter()
            .map(|api| (api.api_key, api.min_version, api.max_version))
            .collect();
        Self { ranges }
    }

    /// Whether the broker serves this request in a version that this client writes.
    pub fn serves(&self, api: ApiKey) -> bool {
        self.choose(api).is_ok()
    }

    /// The highest version that both sides have.
    ///
    /// # Errors
    /// [`ConnectionError::NotServed`].
    pub fn choose(&self, api: ApiKey) -> Result<i16, ConnectionError> {
        let range = self.ranges.iter().find(|range| range.0 == api.code());
        let served = range.map(|&(_, min, max)| (min, max));
        let Some((min, max)) = served else {
            return Err(ConnectionError::NotServed { api, served });
        };
        let version = max.min(version_max(api));
        if version < min.max(api.versions().built_min) {
            return Err(ConnectionError::NotServed { api, served });
        }
        Ok(version)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use corelog_wire::ApiVersion;

    use super::*;

    fn served(api: ApiKey, min_version: i16, max_version: i16) -> ServedVersions {
        ServedVersions::from_response(&ApiVersionsResponse {
            api_keys: vec![ApiVersion {
                api_key: api.code(),
                min_version,
                max_version,
            }],
            ..ApiVersionsResponse::default()
        })
    }

    #[test]
    fn the_highest_version_of_both_sides_is_chosen() {
        let choose = |min, max| served(ApiKey::Produce, min, max).choose(ApiKey::Produce);
        assert_eq!(choose(0, 7), Ok(7));
        assert_eq!(choose(0, 40), Ok(12));
        assert_eq!(choose(3, 3), Ok(3));
    }

    #[test]
    fn ranges_without_a_common_version_are_refused_by_name() {
        for (min, max) in [(0, 2), (13, 20)] {
            let error = served(ApiKey::Produce, min, max)
                .choose(ApiKey::Produce)
                .unwrap_err();
            assert_eq!(
                error,
                ConnectionError::NotServed {
                    api: ApiKey::Produce,
                    served: Some((min, max)),
                }
            );
        }
        assert!(!served(ApiKey::Produce, 0, 9).serves(ApiKey::Fetch));
    }
}
