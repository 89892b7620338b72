//! Tables of a received snapshot, which an engine ingests at once.

use super::{Family, Folder, Output, disk, file};
use crate::{StorageError, simulated::Record};
use rocksdb::SstFileWriter;

const WRITE: &str = "cannot write a snapshot's table";

/// How a table is written.
pub(crate) enum TableOptions {
    Rocks(rocksdb::Options),
    Simulated(Family),
}

/// A table that is created with its first record, since RocksDB has no empty tables. Keys ascend.
pub(crate) struct Table<'a> {
    writer: Writer<'a>,
    folder: &'a Folder,
    name: &'static str,
    begun: bool,
}

enum Writer<'a> {
    Rocks(SstFileWriter<'a>),
    Simulated(Family, Option<Box<dyn Output>>),
}

impl<'a> Table<'a> {
    pub(crate) fn new(options: &'a TableOptions, folder: &'a Folder, name: &'static str) -> Self {
        let writer = match options {
            TableOptions::Rocks(options) => Writer::Rocks(SstFileWriter::create(options)),
            TableOptions::Simulated(family) => Writer::Simulated(*family, None),
        };
        Self { writer, folder, name, begun: false }
    }

    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), StorageError> {
        let failed = file(WRITE);
        let begins = !std::mem::replace(&mut self.begun, true);
        match &mut self.writer {
            Writer::Rocks(writer) => {
                if let (true, Folder::Disk(dir)) = (begins, self.folder) {
                    writer.open(dir.join(self.name)).map_err(|error| disk(WRITE, &error))?;
                }
                writer.put(key, value).map_err(|error| disk(WRITE, &error))
            }
            Writer::Simulated(family, output) => {
                let output = match output {
                    Some(output) => output,
                    None => output.insert(self.folder.create(self.name).map_err(&failed)?),
                };
                let mut record = Record::with_capacity(key.len() + value.len());
                record.put(*family, key, value);
                output.write_all(&record.into_bytes()).map_err(failed)
            }
        }
    }

    /// Syncs the table.
    pub(crate) fn finish(&mut self) -> Result<(), StorageError> {
        match &mut self.writer {
            _ if !self.begun => Ok(()),
            Writer::Rocks(writer) => writer.finish().map_err(|error| disk(WRITE, &error)),
            Writer::Simulated(_, output) => {
                output.iter_mut().try_for_each(|output| output.sync()).map_err(file(WRITE))
            }
        }
    }
}
