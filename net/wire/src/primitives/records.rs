//! Record batches, held by reference.

use bytes::Bytes;

/// The record batches of one partition: whole batches, end to end, in one piece as decoded or in
/// several as a broker reads them from its cache. They are never copied by this crate.
#[derive(Debug, Clone, Default)]
pub enum Records {
    /// Nothing.
    #[default]
    Empty,
    /// One piece.
    Piece(Bytes),
    /// Several pieces that follow each other.
    Pieces(Vec<Bytes>),
}

impl Records {
    /// The pieces in order.
    pub fn pieces(&self) -> &[Bytes] {
        match self {
            Self::Empty => &[],
            Self::Piece(piece) => core::slice::from_ref(piece),
            Self::Pieces(pieces) => pieces,
        }
    }

    /// Bytes of all pieces together.
    pub fn bytes_len(&self) -> usize {
        self.pieces().iter().map(Bytes::len).sum()
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes_len() == 0
    }

    /// The records as one slice: free for one piece, as decoding gives it; a copy for several.
    pub fn to_bytes(&self) -> Bytes {
        match self {
            Self::Empty => Bytes::new(),
            Self::Piece(piece) => piece.clone(),
            Self::Pieces(pieces) => pieces.concat().into(),
        }
    }
}

impl From<Bytes> for Records {
    fn from(piece: Bytes) -> Self {
        if piece.is_empty() {
            Self::Empty
        } else {
            Self::Piece(piece)
        }
    }
}

impl From<Vec<Bytes>> for Records {
    fn from(pieces: Vec<Bytes>) -> Self {
        Self::Pieces(pieces)
    }
}

impl PartialEq for Records {
    /// Compares contents, wherever the pieces are cut.
    fn eq(&self, other: &Self) -> bool {
        let bytes = |records: &Self| -> usize { records.bytes_len() };
        bytes(self) == bytes(other)
            && self
                .pieces()
                .iter()
                .flatten()
                .eq(other.pieces().iter().flatten())
    }
}

impl Eq for Records {}
