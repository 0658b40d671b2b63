//! Frames that are written together.

use std::io::IoSlice;
use std::sync::Arc;

use super::frame::{HEAD_BYTES, Kind, filling};
use super::message::{Meta, OutgoingMessage, SECTIONS};

/// Requests of more bytes are not held.
const HELD_REQUEST_BYTES: usize = 16 << 10;

/// Content of a frame behind its head.
#[derive(Clone)]
pub(super) enum Content {
    Application(Arc<OutgoingMessage>),
    Control(Arc<Vec<u8>>),
}

/// Heads of frames, and what is behind each.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) heads: Vec<[u8; HEAD_BYTES]>,
    pub(super) contents: Vec<Option<Content>>,
}

impl Batch {
    pub(super) fn clear(&mut self) {
        self.heads.clear();
        self.contents.clear();
    }

    pub(super) fn slices(&self) -> Vec<IoSlice<'_>> {
        let mut slices = Vec::with_capacity(self.contents.len() * 9);
        for (head, content) in self.heads.iter().zip(&self.contents) {
            slices.push(IoSlice::new(head));
            for section in content.iter().flat_map(Content::sections).filter(|section| !section.is_empty()) {
                slices.push(IoSlice::new(section));
                let filling = filling(section.len());
                if !filling.is_empty() {
                    slices.push(IoSlice::new(filling));
                }
            }
        }
        slices
    }
}

impl Content {
    pub(super) fn kind(&self) -> (Kind, Meta) {
        match self {
            Self::Application(outgoing) => (Kind::Application, outgoing.meta),
            Self::Control(_) => (Kind::Control, Meta::default()),
        }
    }

    /// Bytes of a request that may wait for others; none if it may not.
    pub(super) fn held_bytes(&self) -> Option<usize> {
        let Self::Application(outgoing) = self else { return None };
        let Meta { request, simple, internal, .. } = outgoing.meta;
        let bytes = outgoing.sections().iter().map(|section| section.len()).sum();
        (request && !simple && !internal && bytes <= HELD_REQUEST_BYTES).then_some(bytes)
    }

    pub(super) fn sections(&self) -> [&[u8]; SECTIONS] {
        match self {
            Self::Application(outgoing) => outgoing.sections(),
            Self::Control(bytes) => [bytes.as_slice(), &[], &[], &[]],
        }
    }
}
