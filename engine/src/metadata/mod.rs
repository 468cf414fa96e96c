//! The metadata image: what the cluster knows, as a pure `apply` of ordered records.

/// One change of metadata.
#[derive(Clone, Debug)]
pub enum MetadataRecord {}
