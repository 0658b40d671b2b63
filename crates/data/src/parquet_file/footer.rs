//! The footer of a file.

use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};

use crate::error::{DataError, Fault};
use crate::store::OpenFile;

/// Magic numbers at both ends, and the length of the footer.
const SHORTEST: u64 = 12;
/// Bytes of the end that are read first: most footers are shorter.
const FIRST_READ: u64 = 1 << 16;

/// Reads the footer of a file.
pub(crate) fn read(file: &OpenFile) -> Result<ParquetMetaData, DataError> {
    let size = file.info.bytes;
    let fail = |fault| Err(file.info.at().error(fault));
    if size == 0 {
        return fail(Fault::Empty);
    }
    if size < SHORTEST {
        return fail(Fault::Cut { reason: format!("{size} bytes are no Parquet file") });
    }
    let mut length = FIRST_READ.min(size);
    loop {
        let end = file.read(size - length..size)?;
        match end.last_chunk::<4>() {
            Some(b"PARE") => return fail(Fault::Encrypted),
            Some(b"PAR1") => {}
            _ => return fail(Fault::Cut { reason: "it does not end in the footer of Parquet".to_owned() }),
        }
        let tail = end.last_chunk::<8>().expect("at least 12 bytes");
        let footer = u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]);
        if u64::from(footer) + SHORTEST > size {
            return fail(Fault::Cut { reason: "its footer is longer than the file".to_owned() });
        }
        let mut reader = ParquetMetaDataReader::new();
        match reader.try_parse_sized(&end, size) {
            Ok(()) => {
                let metadata = reader.finish().map_err(|error| corrupt(file, &error))?;
                check(file, &metadata)?;
                return Ok(metadata);
            }
            Err(ParquetError::NeedMoreData(needed)) if needed as u64 > length && needed as u64 <= size => {
                length = needed as u64;
            }
            Err(error) => return Err(corrupt(file, &error)),
        }
    }
}

/// A footer may promise what the file does not hold.
fn check(file: &OpenFile, metadata: &ParquetMetaData) -> Result<(), DataError> {
    let size = file.info.bytes;
    let mut rows = 0i64;
    for (number, group) in metadata.row_groups().iter().enumerate() {
        let at = || file.info.at().row_group(number);
        let sum = rows.checked_add(group.num_rows()).filter(|_| group.num_rows() >= 0);
        let Some(sum) = sum else {
            let reason = format!("the row group has {} rows", group.num_rows());
            return Err(at().error(Fault::Corrupt { reason }));
        };
        rows = sum;
        for column in group.columns() {
            let at = || at().column(column.column_path().string());
            if column.crypto_metadata().is_some() {
                return Err(at().error(Fault::Encrypted));
            }
            if column.column_descr().max_rep_level() == 0 && column.num_values() != group.num_rows() {
                let reason = format!("{} values for {} rows", column.num_values(), group.num_rows());
                return Err(at().error(Fault::Corrupt { reason }));
            }
            let (offset, length) = (column.data_page_offset(), column.compressed_size());
            let first = column.dictionary_page_offset().unwrap_or(offset);
            let inside = first >= 0
                && length >= 0
                && offset >= 0
                && first.cast_unsigned().checked_add(length.cast_unsigned()).is_some_and(|end| end <= size);
            if !inside {
                let reason = format!("the column has {length} bytes from {first} on, the file {size}");
                return Err(at().error(Fault::Cut { reason }));
            }
        }
    }
    Ok(())
}

fn corrupt(file: &OpenFile, error: &ParquetError) -> DataError {
    let reason = error.to_string();
    let fault = if reason.contains("ncrypt") { Fault::Encrypted } else { Fault::Corrupt { reason } };
    file.info.at().error(fault)
}
