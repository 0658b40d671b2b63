//! Upload of a shard's checkpoint.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use libra_objects::{Fault, PART_BYTES, Upload};
use tracing::debug;

use super::{Archive, ArchiveError, Commit};
use crate::checkpoint::{self, CheckpointError, Checkpoints, FileInfo, MANIFEST, Manifest, directory_name};
use crate::disk::{Disk, read_exact};

/// After the name of a file that is uploaded in parts: an object with the identity of that, so that it can be given up by another
/// process.
pub(super) const NOTE: &str = ".upload";
/// A sleep is no longer, so that an upload can be given up.
const SLEEP: Duration = Duration::from_millis(100);

/// Bytes in a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate(pub u64);

/// Uploads the checkpoints of a shard, one at a time.
#[derive(Debug)]
pub struct Uploader {
    archive: Archive,
    owner: u64,
    rate: Rate,
    part_bytes: u64,
    /// Set when the process is about to end.
    given_up: Arc<AtomicBool>,
    /// Files that this process has uploaded, with their checksums.
    uploaded: BTreeMap<String, u32>,
    /// Bytes that were sent, and from when on they count.
    sent: (u64, Instant),
}

impl Uploader {
    /// For a shard of the job that owns the URL.
    pub fn new(archive: Archive, owner: u64, rate: Rate, given_up: Arc<AtomicBool>) -> Self {
        let (uploaded, sent) = (BTreeMap::new(), (0, Instant::now()));
        Self { archive, owner, rate, part_bytes: PART_BYTES, given_up, uploaded, sent }
    }

    /// The same with parts of another size than 8 MiB. Stores want 5 MiB at least.
    #[must_use]
    pub fn with_part_bytes(self, part_bytes: u64) -> Self {
        Self { part_bytes, ..self }
    }

    /// Uploads a checkpoint with all that it builds on, but for what is there. Its manifest goes last. Returns the bytes that were
    /// sent.
    ///
    /// # Errors
    /// Another job has taken the URL over, or has a checkpoint of this number; or the store or the disk refused. Another call
    /// goes on with what is not there.
    pub fn upload<D: Disk + Clone>(
        &mut self,
        checkpoints: &Checkpoints<D>,
        number: u64,
    ) -> Result<u64, ArchiveError> {
        self.sent = (0, Instant::now());
        self.archive.check_owner(self.owner)?;
        for manifest in checkpoints.manifests(number)? {
            let bytes = checkpoints.manifest_bytes(manifest.description.number)?;
            self.upload_one(checkpoints.disk(), &manifest, bytes.into())?;
        }
        debug!(number, bytes = self.sent.0, "a checkpoint is uploaded");
        Ok(self.sent.0)
    }

    /// Bytes of files that the last upload has sent.
    pub fn bytes_sent(&self) -> u64 {
        self.sent.0
    }

    fn upload_one(
        &mut self,
        disk: &impl Disk,
        manifest: &Manifest,
        bytes: Bytes,
    ) -> Result<(), ArchiveError> {
        let number = manifest.description.number;
        let (local, shard) = (directory_name(number), manifest.description.shard);
        let at = format!("shard-{shard}/{local}/{MANIFEST}");
        let archive = self.archive.clone();
        match archive.objects.read(&archive.at(&at)) {
            // It goes last, so all else is there.
            Ok(there) if there == bytes => return Ok(()),
            Ok(_) => {
                let commit = Commit::name(number);
                match archive.objects.head(&archive.at(&commit)) {
                    Ok(_) => return Err(ArchiveError::NumberTaken { url: archive.url.clone(), number }),
                    Err(Fault::Missing) => {
                        archive.objects.delete(&archive.at(&at)).map_err(archive.fail(&at))?
                    }
                    Err(fault) => return Err(archive.fail(&commit)(fault)),
                }
            }
            Err(Fault::Missing) => {}
            Err(fault) => return Err(archive.fail(&at)(fault)),
        }
        for file in &manifest.files {
            let name = format!("shard-{shard}/{local}/{}", file.name);
            if self.uploaded.get(&name) != Some(&file.checksum) {
                self.upload_file(disk, &format!("{local}/{}", file.name), &name, file)?;
                self.uploaded.insert(name, file.checksum);
            }
        }
        archive.objects.put(&archive.at(&at), bytes).map_err(archive.fail(&at))?;
        // The next one is not compared with these.
        self.uploaded.clear();
        Ok(())
    }

    fn upload_file(
        &mut self,
        disk: &impl Disk,
        local: &str,
        name: &str,
        file: &FileInfo,
    ) -> Result<(), ArchiveError> {
        let archive = self.archive.clone();
        let (objects, path) = (&archive.objects, archive.at(name));
        let upload = if file.bytes <= self.part_bytes {
            None
        } else {
            objects.begin_upload(&path).map_err(archive.fail(name))?
        };
        let Some(mut upload) = upload else {
            let mut checksum = 0;
            let bytes = self.read(disk, local, 0, file.bytes, &mut checksum)?;
            compare(local, file, checksum)?;
            return objects.put(&path, bytes).map_err(archive.fail(name));
        };
        let Some(id) = upload.id().map(|id| Bytes::from(id.to_owned())) else {
            // Dropped, it leaves nothing.
            return self.upload_parts(disk, local, name, file, &mut upload);
        };
        let note = format!("{name}{NOTE}");
        let noted = objects.put(&archive.at(&note), id);
        let sent = noted
            .map_err(archive.fail(&note))
            .and_then(|()| self.upload_parts(disk, local, name, file, &mut upload));
        if sent.is_err() && objects.abort_upload(upload).is_err() {
            // The note stays for `prune`.
            return sent;
        }
        let removed = objects.delete(&archive.at(&note)).map_err(archive.fail(&note));
        sent.and(removed)
    }

    fn upload_parts(
        &mut self,
        disk: &impl Disk,
        local: &str,
        name: &str,
        file: &FileInfo,
        upload: &mut Upload,
    ) -> Result<(), ArchiveError> {
        let archive = self.archive.clone();
        let (part_bytes, mut offset, mut checksum) = (self.part_bytes, 0, 0);
        let next = |bytes| {
            let part = self.read(disk, local, offset, bytes, &mut checksum);
            offset += bytes;
            part
        };
        archive.objects.send_all(upload, file.bytes, part_bytes, next, archive.fail(name))?;
        compare(local, file, checksum)?;
        archive.objects.finish_upload(upload).map_err(archive.fail(name))
    }

    /// Reads what is sent next, once it may be.
    fn read(
        &mut self,
        disk: &impl Disk,
        local: &str,
        offset: u64,
        bytes: u64,
        checksum: &mut u32,
    ) -> Result<Bytes, ArchiveError> {
        self.wait(bytes)?;
        let mut buffer = vec![0; usize::try_from(bytes).expect("it was in memory when it was written")];
        read_exact(disk, local, offset, &mut buffer)?;
        *checksum = crc32c::crc32c_append(*checksum, &buffer);
        Ok(buffer.into())
    }

    /// Waits until so many more bytes may be sent.
    fn wait(&mut self, bytes: u64) -> Result<(), ArchiveError> {
        let due = Duration::from_secs_f64(self.sent.0 as f64 / self.rate.0.max(1) as f64);
        self.sent.0 += bytes;
        loop {
            if self.given_up.load(Ordering::Relaxed) {
                return Err(ArchiveError::GivenUp);
            }
            match due.checked_sub(self.sent.1.elapsed()).filter(|left| !left.is_zero()) {
                Some(left) => std::thread::sleep(left.min(SLEEP)),
                None => return Ok(()),
            }
        }
    }
}

/// A file that is not what it was when it was written does not get there.
fn compare(local: &str, file: &FileInfo, found: u32) -> Result<(), CheckpointError> {
    if found == file.checksum {
        return Ok(());
    }
    let fault = checkpoint::Fault::Checksum { expected: file.checksum, found };
    Err(CheckpointError::Damaged { file: local.to_owned(), fault })
}
