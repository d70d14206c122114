//! Streams of changes that go on after the loss of a connection.
//!
//! etcd's client ends a watch with its connection. A stream here remembers the revision after the last change that it
//! has delivered and watches again from there, on whichever server answers, for as long as it takes. It ends when
//! the server no longer has that revision, or never had it because its data are others.

use std::time::Duration;

use async_trait::async_trait;
use calico_model::path::KeyRange;
use etcd_client::{Event, EventType, WatchOptions, WatchResponse, WatchStream};

use super::servers::{Clients, Servers};
use super::{entry, header_revision, raw, signed, unsigned};
use crate::StoreError;
use crate::raw::{RawEvent, RawEvents};

/// Pause before a lost stream is opened again, growing with each failure.
const PAUSE: Duration = Duration::from_millis(50);

/// Longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A stream of changes.
pub(super) struct Changes {
    servers: Servers,
    range: KeyRange,
    /// First revision that is still to be delivered.
    next: u64,
    stream: Option<WatchStream>,
}

// === impl Changes ===

impl Changes {
    /// Opens the stream; fails if no server can be reached.
    pub(super) async fn start(servers: Servers, range: KeyRange, after: u64) -> Result<Self, StoreError> {
        let mut changes = Self { servers, range, next: after.saturating_add(1), stream: None };
        changes.stream = Some(changes.open().await?);
        Ok(changes)
    }

    async fn open(&self) -> Result<WatchStream, StoreError> {
        let mut options = WatchOptions::new().with_start_revision(signed(self.next)).with_prev_key();
        if let KeyRange::Prefix(_) = self.range {
            options = options.with_range(self.range.end().unwrap_or_else(|| vec![0]));
        }
        let open = |mut clients: Clients| {
            let (start, options) = (self.range.start().to_owned(), options.clone());
            async move { clients.watch.watch(start, Some(options)).await }
        };
        self.servers.read(Some(self.next), open).await
    }

    /// Opens the stream again, however long that takes.
    async fn reopen(&self) -> Result<WatchStream, StoreError> {
        let mut pause = PAUSE;
        let mut told = false;
        loop {
            match self.open().await {
                Ok(stream) => {
                    if told {
                        tracing::info!(range = self.range.start(), "watching etcd again");
                    }
                    return Ok(stream);
                }
                Err(error @ StoreError::Unreachable { .. }) => {
                    if !told {
                        tracing::warn!(%error, range = self.range.start(), "lost a watch of etcd; trying again");
                        told = true;
                    }
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Checks a server whose newest revision is behind what was already delivered: it may be late, or its data may be
    /// others than before.
    async fn check_history(&self, server_revision: u64) -> Result<(), StoreError> {
        if server_revision.saturating_add(1) >= self.next {
            return Ok(());
        }
        let newest = |mut clients: Clients| {
            let start = self.range.start().to_owned();
            async move { Ok(header_revision(clients.kv.get(start, None).await?.header())) }
        };
        if self.servers.read(None, newest).await?.saturating_add(1) >= self.next {
            return Ok(());
        }
        tracing::warn!(
            range = self.range.start(),
            "etcd went back to older data; its watchers have to list again"
        );
        Err(raw::compacted(self.next.saturating_sub(1)))
    }

    /// What a response brings; `None` if the stream is to be opened again.
    async fn take(&mut self, response: &WatchResponse) -> Result<Option<Vec<RawEvent>>, StoreError> {
        if response.compact_revision() > 0 {
            return Err(raw::compacted(self.next.saturating_sub(1)));
        }
        if response.canceled() {
            let reason = response.cancel_reason();
            if reason.contains("permission denied") {
                return Err(StoreError::Unauthorized(reason.to_owned()));
            }
            return Ok(None);
        }
        if response.created() {
            self.check_history(header_revision(response.header())).await?;
        }
        let events: Vec<RawEvent> = response.events().iter().filter_map(event).collect();
        if let Some(last) = events.last() {
            self.next = last.revision.saturating_add(1);
        }
        Ok(Some(events))
    }
}

#[async_trait]
impl RawEvents for Changes {
    async fn next(&mut self) -> Result<Vec<RawEvent>, StoreError> {
        let servers = self.servers.clone();
        let changes = async {
            loop {
                let stream = match &mut self.stream {
                    Some(stream) => stream,
                    None => {
                        let stream = self.reopen().await?;
                        self.stream.insert(stream)
                    }
                };
                let response = match stream.message().await {
                    Ok(response) => response,
                    Err(error) => {
                        tracing::debug!(%error, "a watch of etcd broke");
                        None
                    }
                };
                let events = match response {
                    Some(response) => self.take(&response).await?,
                    None => None,
                };
                match events {
                    Some(events) if events.is_empty() => {}
                    Some(events) => return Ok(events),
                    None => {
                        self.stream = None;
                        // Not in a busy loop, should the server end every watch at once.
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
        };
        tokio::select! {
            biased;
            error = servers.closed() => Err(error),
            result = changes => result,
        }
    }
}

fn event(event: &Event) -> Option<RawEvent> {
    let kv = event.kv()?;
    let revision = unsigned(kv.mod_revision());
    let old = event.prev_kv().cloned().map(entry);
    let now = entry(kv.clone());
    let path = now.path.clone();
    let new = match event.event_type() {
        EventType::Put => Some(now),
        EventType::Delete => None,
    };
    Some(RawEvent { path, revision, new, old })
}
