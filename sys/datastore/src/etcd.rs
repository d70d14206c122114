//! etcd, version 3 of its API.
//!
//! Owns: settings of the connection (`options`), addresses of servers (`names`), which server to ask and what to do when it does not answer
//! (`servers`), the database operations (this module), and streams that survive the loss of a connection (`watch`).
//! Invariants: nothing waits for ever; a write that may have happened is never sent a second time; an error of the
//! connection names the servers.

use async_trait::async_trait;
use calico_model::path::KeyRange;
use etcd_client::{
    Compare, CompareOp, DeleteOptions, Error, GetOptions, KeyValue, PutOptions, ResponseHeader, Txn, TxnOp,
    TxnOpResponse,
};

use crate::StoreError;
use crate::raw::{self, RawCondition, RawEntry, RawEvents, RawOutcome, RawStore, RawTxn, RawWrite};

mod names;
mod options;
mod servers;
mod watch;

pub use options::{EtcdOptions, EtcdTls};

use servers::{Clients, Servers};

/// Entries of one page of a list.
const PAGE: i64 = 1000;

/// How often a list starts again when its revision is compacted between two pages.
const LIST_ATTEMPTS: usize = 3;

/// The store. Clones share their connections.
#[derive(Debug, Clone)]
pub struct EtcdRaw {
    servers: Servers,
}

// === impl EtcdRaw ===

impl EtcdRaw {
    /// Most conditions, and most writes, of one transaction: the limit of a server with default settings, which
    /// counts the two apart.
    pub const MAX_OPERATIONS: usize = 128;

    /// The store on the servers of `options`. Connects with the first operation. `why` says for error messages why
    /// this store was chosen; it may be empty.
    pub fn new(options: EtcdOptions, why: &str) -> Result<Self, StoreError> {
        Ok(Self { servers: Servers::new(options, why)? })
    }

    /// Reads one page from `start` on; says whether there is more.
    async fn page(
        &self,
        start: Vec<u8>,
        end: Vec<u8>,
        at: Option<u64>,
    ) -> Result<(Vec<RawEntry>, bool, u64), StoreError> {
        let options = GetOptions::new().with_range(end).with_limit(PAGE).with_revision(at.map_or(0, signed));
        let read = |mut clients: Clients| {
            let (start, options) = (start.clone(), options.clone());
            async move {
                let mut response = clients.kv.get(start, Some(options)).await?;
                let revision = header_revision(response.header());
                let more = response.more();
                Ok((response.take_kvs().into_iter().map(entry).collect(), more, revision))
            }
        };
        self.servers.read(at, read).await
    }

    async fn range_once(
        &self,
        range: &KeyRange,
        at: Option<u64>,
    ) -> Result<(Vec<RawEntry>, u64), StoreError> {
        let end = range.end().unwrap_or_else(|| vec![0]);
        let (mut found, mut more, revision) = self.page(range.start().into(), end.clone(), at).await?;
        let revision = at.unwrap_or(revision);
        while let Some(last) = found.last().filter(|_| more) {
            let mut start = last.path.clone().into_bytes();
            start.push(0);
            let (page, goes_on, _) = self.page(start, end.clone(), Some(revision)).await?;
            // A page without entries cannot promise more.
            more = goes_on && !page.is_empty();
            found.extend(page);
        }
        Ok((found, revision))
    }

    /// Prepares the puts' leases and turns the transaction into etcd's.
    async fn transaction(&self, txn: &RawTxn) -> Result<Txn, StoreError> {
        let mut writes = Vec::with_capacity(txn.writes.len());
        for write in &txn.writes {
            writes.push(match write {
                RawWrite::Put { path, value, ttl } => {
                    let options = match ttl {
                        Some(seconds) => Some(PutOptions::new().with_lease(self.lease(*seconds).await?)),
                        None => None,
                    };
                    TxnOp::put(path.clone(), value.clone(), options)
                }
                RawWrite::Delete(path) => {
                    TxnOp::delete(path.clone(), Some(DeleteOptions::new().with_prev_key()))
                }
            });
        }
        let conditions: Vec<Compare> = txn.conditions.iter().map(compare).collect();
        let reports = txn.conditions.iter().filter(|_| txn.report_conflict);
        let reads: Vec<TxnOp> = reports.map(|c| TxnOp::get(c.path(), None)).collect();
        Ok(Txn::new().when(conditions).and_then(writes).or_else(reads))
    }

    async fn lease(&self, seconds: u64) -> Result<i64, StoreError> {
        // A lease that nobody uses ends by itself, so this may be asked for again.
        let grant =
            |mut clients: Clients| async move { Ok(clients.lease.grant(signed(seconds), None).await?.id()) };
        self.servers.read(None, grant).await
    }
}

#[async_trait]
impl RawStore for EtcdRaw {
    fn description(&self) -> String {
        self.servers.description().to_owned()
    }

    fn max_operations(&self) -> usize {
        Self::MAX_OPERATIONS
    }

    async fn commit(&self, txn: RawTxn) -> Result<RawOutcome, StoreError> {
        raw::check_txn(&txn, Self::MAX_OPERATIONS)?;
        let request = self.transaction(&txn).await?;
        let commit = |mut clients: Clients| {
            let request = request.clone();
            async move {
                let response = clients.kv.txn(request).await?;
                Ok((response.succeeded(), header_revision(response.header()), response.op_responses()))
            }
        };
        let (succeeded, revision, responses) = self.servers.write(commit).await?;
        if !succeeded {
            let read = |response| match response {
                TxnOpResponse::Get(mut get) => get.take_kvs().into_iter().next().map(entry),
                _ => None,
            };
            return Ok(RawOutcome::Conflict { current: responses.into_iter().map(read).collect() });
        }
        let removed = |response| match response {
            TxnOpResponse::Delete(mut delete) => delete.take_prev_kvs().into_iter().next().map(entry),
            _ => None,
        };
        Ok(RawOutcome::Committed { revision, removed: responses.into_iter().map(removed).collect() })
    }

    async fn get(
        &self,
        paths: &[String],
        at: Option<u64>,
    ) -> Result<(Vec<Option<RawEntry>>, u64), StoreError> {
        let mut at = at;
        let mut found = Vec::with_capacity(paths.len());
        // All of one transaction are read at one revision, which the next transactions keep to.
        for chunk in paths.chunks(Self::MAX_OPERATIONS) {
            let options = GetOptions::new().with_revision(at.map_or(0, signed));
            let gets: Vec<_> =
                chunk.iter().map(|path| TxnOp::get(path.clone(), Some(options.clone()))).collect();
            let read = |mut clients: Clients| {
                let request = Txn::new().and_then(gets.clone());
                async move {
                    let response = clients.kv.txn(request).await?;
                    Ok((header_revision(response.header()), response.op_responses()))
                }
            };
            let (revision, responses) = self.servers.read(at, read).await?;
            at.get_or_insert(revision);
            found.extend(responses.into_iter().map(|response| match response {
                TxnOpResponse::Get(mut get) => get.take_kvs().into_iter().next().map(entry),
                _ => None,
            }));
        }
        Ok((found, at.unwrap_or_default()))
    }

    async fn range(&self, range: &KeyRange, at: Option<u64>) -> Result<(Vec<RawEntry>, u64), StoreError> {
        for _ in 1..LIST_ATTEMPTS {
            match self.range_once(range, at).await {
                Err(StoreError::Compacted { .. }) if at.is_none() => {}
                other => return other,
            }
        }
        self.range_once(range, at).await
    }

    async fn watch(&self, range: &KeyRange, after: u64) -> Result<Box<dyn RawEvents>, StoreError> {
        Ok(Box::new(watch::Changes::start(self.servers.clone(), range.clone(), after).await?))
    }

    async fn delete_range(&self, range: &KeyRange) -> Result<(), StoreError> {
        let options = DeleteOptions::new().with_range(range.end().unwrap_or_else(|| vec![0]));
        let delete = |mut clients: Clients| {
            let (start, options) = (range.start().to_owned(), options.clone());
            async move { clients.kv.delete(start, Some(options)).await.map(drop) }
        };
        self.servers.read(None, delete).await
    }

    async fn compact(&self, revision: u64) -> Result<(), StoreError> {
        let compact =
            |mut clients: Clients| async move { clients.kv.compact(signed(revision), None).await.map(drop) };
        self.servers.read(Some(revision), compact).await
    }

    async fn initialize(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn close(&self) {
        self.servers.close();
    }
}

/// etcd's revisions are signed.
fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

fn unsigned(n: i64) -> u64 {
    u64::try_from(n).unwrap_or_default()
}

fn header_revision(header: Option<&ResponseHeader>) -> u64 {
    header.map_or(0, |header| unsigned(header.revision()))
}

fn compare(condition: &RawCondition) -> Compare {
    match condition {
        RawCondition::Absent(path) => Compare::version(path.clone(), CompareOp::Equal, 0),
        // To etcd an absent key has revision 0; to the contract it has none.
        RawCondition::Revision(path, 0) => Compare::mod_revision(path.clone(), CompareOp::Equal, -1),
        RawCondition::Revision(path, revision) => {
            Compare::mod_revision(path.clone(), CompareOp::Equal, signed(*revision))
        }
    }
}

fn entry(kv: KeyValue) -> RawEntry {
    let (created, modified) = (unsigned(kv.create_revision()), unsigned(kv.mod_revision()));
    let (key, value) = kv.into_key_value();
    // Keys that are no text are nobody's; the text that comes out matches no key.
    let path = String::from_utf8(key).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned());
    RawEntry { path, value, created, modified }
}

/// Result of etcd's client.
type Answer<T> = Result<T, Error>;
