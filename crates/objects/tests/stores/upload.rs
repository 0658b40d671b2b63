//! Parts that are sent at the same time.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use libra_objects::{Fault, Objects, Upload};
use object_store::memory::InMemory;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{Error, PutPayload, PutResult, Result};
use tokio::sync::Barrier;
use tokio::time::timeout;

const AT_ONCE: usize = 3;

/// A store that answers when all parts of a batch are there, last part first. It refuses the part `refused`.
#[derive(Debug)]
struct Slow {
    store: Arc<InMemory>,
    batch: Barrier,
    refused: usize,
}

#[async_trait]
impl MultipartStore for Slow {
    async fn create_multipart(&self, path: &Path) -> Result<String> {
        self.store.create_multipart(path).await
    }

    async fn put_part(&self, path: &Path, id: &String, part: usize, data: PutPayload) -> Result<PartId> {
        let is_late = |_| Error::Generic { store: "slow", source: "the other parts do not come".into() };
        timeout(Duration::from_secs(20), self.batch.wait()).await.map_err(is_late)?;
        tokio::time::sleep(Duration::from_millis(10 * (AT_ONCE - part % AT_ONCE) as u64)).await;
        if part == self.refused {
            return Err(Error::Generic { store: "slow", source: "the disk is full".into() });
        }
        self.store.put_part(path, id, part, data).await
    }

    async fn complete_multipart(&self, path: &Path, id: &String, parts: Vec<PartId>) -> Result<PutResult> {
        self.store.complete_multipart(path, id, parts).await
    }

    async fn abort_multipart(&self, path: &Path, id: &String) -> Result<()> {
        self.store.abort_multipart(path, id).await
    }
}

fn objects(refused: usize) -> Objects {
    let store = Arc::new(InMemory::new());
    let slow = Slow { store: store.clone(), batch: Barrier::new(AT_ONCE), refused };
    Objects::over(store, Some(Arc::new(slow))).unwrap()
}

/// Uploads parts of two bytes each.
fn send(objects: &Objects, upload: &mut Upload, parts: Range<u8>) -> Result<(), Fault> {
    let bytes = 2 * u64::try_from(parts.len()).unwrap();
    let mut parts = parts.map(|part| Bytes::from(vec![part; 2]));
    objects.send_all(upload, bytes, 2, |_| Ok(parts.next().unwrap()), |fault| fault)
}

#[test]
fn parts_are_sent_together_and_keep_their_order() {
    let objects = objects(usize::MAX);
    let mut upload = objects.begin_upload("run/rows").unwrap().unwrap();
    for parts in [0..3, 3..6] {
        send(&objects, &mut upload, parts).unwrap();
    }
    objects.finish_upload(&mut upload).unwrap();
    assert_eq!(objects.read("run/rows").unwrap(), vec![0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]);
}

#[test]
fn a_part_that_is_refused_is_the_answer_of_all() {
    let objects = objects(4);
    let mut upload = objects.begin_upload("run/rows").unwrap().unwrap();
    send(&objects, &mut upload, 0..3).unwrap();
    let error = send(&objects, &mut upload, 3..6).unwrap_err().to_string();
    assert!(error.contains("the disk is full"), "{error}");
    objects.abort_upload(upload).unwrap();
    assert!(objects.list("").unwrap().is_empty());
}
