//! Frames in a stream of bytes: a length of four bytes, big-endian, then as many bytes of a message.

use core::ops::Range;
use std::io::{self, IoSlice};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

pub(crate) const LENGTH_BYTES: usize = 4;
/// Size at the start of a stream: most carry little.
const BUFFER_BYTES_MIN: usize = 4 << 10;
/// Bytes that are read at once if they are there, and are still in the cache of the processor that decodes them.
const BUFFER_BYTES: usize = 256 << 10;
/// Memory beyond this, which a large frame needed, is given back.
const KEPT_BYTES: usize = 4 << 20;
/// Frames that are handed to the kernel at once.
const BATCH: usize = 64;

/// Reads frames, one after the other, into the same memory.
pub(crate) struct FrameReader<R> {
    stream: R,
    buffer: Vec<u8>,
    /// Bytes that were read and not handed out.
    filled: Range<usize>,
    /// True if the last read found more than there was room for.
    was_full: bool,
    /// True if a frame was handed out.
    has_read: bool,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub(crate) fn new(stream: R) -> Self {
        Self { stream, buffer: vec![0; BUFFER_BYTES_MIN], filled: 0..0, was_full: false, has_read: false }
    }

    /// The next frame, without its length; `None` at the end of the stream. One of more bytes than this is an error (rule S2). Nothing is
    /// lost if the caller stops waiting.
    pub(crate) async fn next(&mut self, bytes_max: usize) -> io::Result<Option<&[u8]>> {
        loop {
            if let Some(frame) = self.complete(bytes_max)? {
                self.filled.start = frame.end;
                self.has_read = true;
                return Ok(Some(&self.buffer[frame]));
            }
            self.make_room();
            let read = match self.stream.read(&mut self.buffer[self.filled.end..]).await {
                // A process that was killed cannot take leave as TLS has it; frames have lengths, so nothing is cut off unseen.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => 0,
                read => read?,
            };
            self.filled.end += read;
            self.was_full = self.filled.end == self.buffer.len();
            if read == 0 {
                return if self.filled.is_empty() {
                    Ok(None)
                } else {
                    Err(io::ErrorKind::UnexpectedEof.into())
                };
            }
        }
    }

    /// Returns the place of the next frame, if all of it is there.
    fn complete(&self, bytes_max: usize) -> io::Result<Option<Range<usize>>> {
        let Some(length) = self.buffer[self.filled.clone()].first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        if !self.has_read && speaks_tls(length) {
            let error = SPEAKS_TLS;
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, error));
        }
        let length = u32::from_be_bytes(*length) as usize;
        if length > bytes_max {
            let error = format!("a message of {length} bytes, where {bytes_max} may be");
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
        let start = self.filled.start + LENGTH_BYTES;
        Ok((start + length <= self.filled.end).then_some(start..start + length))
    }

    /// Makes room for more bytes. Memory follows the bytes received, not what a length promises.
    fn make_room(&mut self) {
        if self.filled.is_empty() {
            self.filled = 0..0;
            if self.buffer.len() > KEPT_BYTES {
                self.buffer = vec![0; BUFFER_BYTES];
            }
        } else if self.filled.start > 0 {
            self.buffer.copy_within(self.filled.clone(), 0);
            self.filled = 0..self.filled.len();
        }
        let is_small = self.was_full && self.buffer.len() < BUFFER_BYTES;
        if is_small || self.filled.end == self.buffer.len() {
            self.buffer.resize(2 * self.buffer.len(), 0);
        }
    }

    /// Reads to the end of the stream, and forgets it.
    pub(crate) async fn drain(&mut self) {
        self.filled = 0..0;
        while self.stream.read(&mut self.buffer).await.is_ok_and(|read| read > 0) {}
    }
}

/// The reason to close such a stream, in words for a person.
pub(crate) const SPEAKS_TLS: &str = "it speaks TLS, and this end has no token";

/// Returns true if a stream begins with a record of TLS, a handshake or an alert, and not with the length of a message.
pub(crate) fn speaks_tls(bytes: &[u8]) -> bool {
    matches!(bytes, [0x15 | 0x16, 0x03, ..])
}

/// Placeholder for the length in front of a frame that is not complete.
pub(crate) const NO_LENGTH: [u8; LENGTH_BYTES] = [0; LENGTH_BYTES];

/// Puts the length of a frame into the bytes that were left free for it.
pub(crate) fn seal(frame: &mut [u8]) {
    let (place, content) = frame.split_first_chunk_mut().expect("room was left for the length");
    *place = u32::try_from(content.len()).expect("no message is that large").to_be_bytes();
}

/// Writes frames; the kernel takes them from where they are. `written` is called after each step.
pub(crate) async fn write_frames<W: AsyncWrite + Unpin>(
    writer: &mut W,
    frames: &[Vec<u8>],
    mut written: impl FnMut(usize),
) -> io::Result<()> {
    for frames in frames.chunks(BATCH) {
        let mut slices: Vec<IoSlice<'_>> = frames.iter().map(|frame| IoSlice::new(frame)).collect();
        let mut rest = slices.as_mut_slice();
        while !rest.is_empty() {
            let bytes = writer.write_vectored(rest).await?;
            if bytes == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            IoSlice::advance_slices(&mut rest, bytes);
            written(bytes);
        }
    }
    // TLS may have encrypted more than the kernel has taken.
    writer.flush().await
}

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests {
    use libra_proto::MESSAGE_BYTES_MAX;

    use super::*;

    fn frame(content: &[u8]) -> Vec<u8> {
        let mut frame = [NO_LENGTH.as_slice(), content].concat();
        seal(&mut frame);
        frame
    }

    async fn all(bytes: &[u8]) -> (Vec<Vec<u8>>, io::Result<()>) {
        let (mut reader, mut frames) = (FrameReader::new(bytes), Vec::new());
        loop {
            match reader.next(MESSAGE_BYTES_MAX).await {
                Ok(Some(frame)) => frames.push(frame.to_vec()),
                Ok(None) => return (frames, Ok(())),
                Err(error) => return (frames, Err(error)),
            }
        }
    }

    #[tokio::test]
    async fn frames_of_any_size_come_out_as_they_went_in() {
        let sizes = [0, 1, 5, BUFFER_BYTES - 4, BUFFER_BYTES - 3, 3, 5 * BUFFER_BYTES, 0, 100];
        let frames: Vec<Vec<u8>> = sizes.iter().zip(1u8..).map(|(size, byte)| vec![byte; *size]).collect();
        let mut bytes = Vec::new();
        let sealed: Vec<Vec<u8>> = frames.iter().map(|content| frame(content)).collect();
        let mut counted = 0;
        write_frames(&mut bytes, &sealed, |written| counted += written).await.unwrap();
        assert_eq!(counted, bytes.len());
        let (read, end) = all(&bytes).await;
        assert!(end.is_ok());
        assert!(read == frames);
        // A stream that ends within a frame has not ended well.
        let (read, end) = all(&bytes[..bytes.len() - 1]).await;
        assert_eq!((read.len(), end.unwrap_err().kind()), (frames.len() - 1, io::ErrorKind::UnexpectedEof));
    }

    #[tokio::test]
    async fn too_long_frames_are_refused_and_a_length_takes_no_memory() {
        let (read, end) = all(&u32::MAX.to_be_bytes()).await;
        assert_eq!((read.len(), end.unwrap_err().kind()), (0, io::ErrorKind::InvalidData));
        let promise = u32::try_from(MESSAGE_BYTES_MAX).unwrap().to_be_bytes();
        let mut reader = FrameReader::new(promise.as_slice());
        assert!(reader.next(MESSAGE_BYTES_MAX).await.is_err());
        assert_eq!(reader.buffer.len(), BUFFER_BYTES_MIN);
    }

    // rule S2
    #[tokio::test]
    async fn a_frame_above_the_bound_of_its_stream_is_refused() {
        let bytes = [frame(&[1; 100]), frame(&[2; 101]), frame(&[3])].concat();
        let mut reader = FrameReader::new(bytes.as_slice());
        assert_eq!(reader.next(100).await.unwrap(), Some([1; 100].as_slice()));
        assert_eq!(reader.next(100).await.unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(reader.next(101).await.unwrap(), Some([2; 101].as_slice()));
    }

    // rule S1
    #[tokio::test]
    async fn memory_grows_with_what_comes_and_is_small_before() {
        let reader = FrameReader::new(&[][..]);
        assert_eq!(reader.buffer.capacity(), BUFFER_BYTES_MIN);
        let bytes = frame(&[7; 1000]).repeat(2000);
        let mut reader = FrameReader::new(bytes.as_slice());
        while reader.next(1000).await.unwrap().is_some() {}
        assert_eq!(reader.buffer.len(), BUFFER_BYTES);
    }
}
