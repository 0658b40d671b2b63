//! Files of servers: object stores, and HTTP.

use std::ops::Range;

use bytes::Bytes;
use libra_objects::{Environment, Fault as Refusal, Kind, Object, Objects};

use super::{FileInfo, Found};
use crate::error::{At, DataError, Fault};
use crate::place::Place;

/// Objects of a place. Callers wait, so they must not be tasks of another loop.
#[derive(Debug)]
pub(super) struct Remote {
    objects: Objects,
    kind: Kind,
    prefix: String,
}

impl Remote {
    pub(super) fn open(
        place: &Place,
        environment: &Environment,
        retries: Option<u32>,
    ) -> Result<Self, DataError> {
        let objects = Objects::open(place.kind(), environment, retries);
        let objects = objects.map_err(|fault| place.at().error(fault.into()))?;
        Ok(Self { objects, kind: place.kind().clone(), prefix: place.name_of("") })
    }

    pub(super) fn counted_apart(&self) -> Self {
        Self { objects: self.objects.counted_apart(), kind: self.kind.clone(), prefix: self.prefix.clone() }
    }

    /// Requests sent, and how many of them were retries.
    pub(super) fn requests(&self) -> (u64, u64) {
        let counts = self.objects.counts();
        (counts.requests, counts.retries)
    }

    fn info(&self, object: Object) -> FileInfo {
        let Object { path, bytes, version, .. } = object;
        FileInfo { name: format!("{}{path}", self.prefix), path, bytes, version }
    }

    pub(super) fn list(&self, place: &Place) -> Result<Found, DataError> {
        let fail = |fault: Refusal| place.at().error(fault.into());
        let is_http = matches!(self.kind, Kind::Http(_));
        if place.pattern.is_none() && !place.path.is_empty() {
            match self.objects.head(&place.path) {
                Ok(object) => return Ok(Found::File(self.info(object))),
                Err(Refusal::Missing) if !is_http => {}
                Err(fault) => return Err(fail(fault)),
            }
        }
        if is_http {
            return Err(place
                .at()
                .error(Fault::BadPlace { reason: "a server of HTTP lists no directories" }));
        }
        let listed = self.objects.list(&place.path).map_err(fail)?;
        if listed.is_empty() && place.pattern.is_none() {
            return Err(place.at().error(Fault::Missing));
        }
        Ok(Found::Files(listed.into_iter().map(|object| self.info(object)).collect()))
    }

    pub(super) fn read_beside(
        &self,
        place: &Place,
        name: &str,
    ) -> Result<Option<(String, Bytes)>, DataError> {
        let directory = match crate::place::Format::of_listed(&place.path) {
            Some(_) if place.pattern.is_none() => {
                place.path.rsplit_once('/').map_or("", |(parent, _)| parent)
            }
            _ => &place.path,
        };
        let path = format!("{directory}/{name}");
        let path = path.trim_start_matches('/');
        match self.objects.read(path) {
            Ok(bytes) => Ok(Some((place.name_of(path), bytes))),
            Err(Refusal::Missing | Refusal::Denied { .. }) => Ok(None),
            Err(fault) => Err(At::file(place.name_of(path)).error(fault.into())),
        }
    }

    pub(super) fn read(&self, info: &FileInfo, range: Range<u64>) -> Result<Bytes, DataError> {
        let FileInfo { path, bytes, version, .. } = info.clone();
        let object = Object { path, bytes, version, modified: std::time::SystemTime::UNIX_EPOCH };
        self.objects.read_range(&object, range).map_err(|fault| info.at().error(fault.into()))
    }
}
