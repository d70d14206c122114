//! Finding blocks that the owner does not have yet: free ones, empty ones of others, and room in foreign ones.

use std::collections::BTreeMap;

use calico_model::{Key, KvPair, ListOptions};
use calico_net::Cidr;

use super::{Assignments, Candidate, CandidateState, Search, Taken};
use crate::block::{Block, Owner};
use crate::error::IpamError;
use crate::machine::Cx;
use crate::ops::affinity::{self, ReleaseRules};
use crate::ops::{Attempt, Held, Patience, RECLAIM_AGE_SECONDS, Trouble};
use crate::pools::Pool;
use crate::walk::BlockWalk;

/// Blocks at the start of the walk that are looked at one by one before all blocks are listed.
const PROBES: usize = 4;

/// A block that may be claimed.
struct Find {
    cidr: Cidr,
    /// The owner's affinity for it, if it was looked at.
    row: Option<Option<KvPair>>,
    /// It is there and ours.
    ours: bool,
}

impl<'a> Search<'a> {
    /// Claims one more block and makes it the next candidate. False if there is none to claim.
    pub(super) async fn claim_one(
        &mut self,
        cx: &Cx,
        patience: &mut Patience,
        got: &mut Assignments,
    ) -> Result<bool, IpamError> {
        if self.owned.len() >= self.limit as usize {
            let limit = self.limit;
            got.say(format!(
                "Need to allocate an IPAM block but could not - limit of {limit} blocks reached for this node"
            ));
            return Err(IpamError::BlockLimit);
        }
        if !self.config.auto_allocate_blocks {
            return Err(IpamError::NoBlock);
        }
        loop {
            let Some(find) = self.find(cx).await? else { return Ok(false) };
            let cidr = find.cidr;
            match self.claim(cx, find).await {
                // Another process of the owner has it, and has used it up already.
                Ok(held) if held.block.free(&self.reservations) == 0 => patience.lost(cx).await?,
                Ok(held) => {
                    let state = CandidateState::Ready(Box::new(held));
                    self.candidates.push_front(Candidate { cidr, state });
                    self.owned.insert(cidr);
                    return Ok(true);
                }
                Err(Trouble::Fatal(error)) => match error {
                    IpamError::CorruptBlock { .. } | IpamError::WrongValue { .. } => {
                        self.given_up.insert(cidr);
                    }
                    IpamError::Store(_) if self.unreadable(cx, cidr).await => {
                        self.given_up.insert(cidr);
                    }
                    error => return Err(error),
                },
                Err(_) => patience.lost(cx).await?,
            }
        }
    }

    /// A block of the owner with a free address; claims one if there is none.
    pub(super) async fn ensure(&mut self, cx: &Cx, got: &mut Assignments) -> Result<Cidr, IpamError> {
        let mut patience = Patience(0);
        loop {
            let Some(candidate) = self.next_candidate(cx).await else {
                if !self.claim_one(cx, &mut patience, got).await? {
                    return Err(IpamError::NoBlock);
                }
                continue;
            };
            let cidr = candidate.cidr;
            let result = match self.ready(cx, candidate).await {
                Ok(held) => cx.commit().await.map(|()| held).map_err(Trouble::from),
                Err(trouble) => Err(trouble),
            };
            match result {
                Ok(Some(held)) if held.block.free(&self.reservations) > 0 => return Ok(cidr),
                Ok(_) => {}
                Err(Trouble::Retry) => {
                    patience.lost(cx).await?;
                    self.candidates.push_front(Candidate { cidr, state: CandidateState::Lost });
                }
                Err(Trouble::Claimed | Trouble::Stale) => self.lost_block(cx, cidr).await?,
                Err(Trouble::Fatal(error)) if affinity::is_store_failure(&error).is_none() => {}
                Err(Trouble::Fatal(error)) => return Err(error),
            }
        }
    }

    /// Takes what is missing from blocks of any owner.
    pub(super) async fn borrow(&mut self, cx: &Cx, got: &mut Assignments) -> Result<Taken, IpamError> {
        let blocks = self.all_blocks(cx).await?;
        let mut exhausted = Vec::new();
        for pool in self.allowed_pools() {
            let walk = self.walk(cx, pool);
            let mut places: Vec<(u128, Cidr)> =
                blocks.keys().filter_map(|cidr| Some((walk.distance(cidr)?, *cidr))).collect();
            places.sort_unstable();
            for (_, cidr) in places {
                let has_room = blocks.get(&cidr).is_some_and(|b| b.free(&self.reservations) > 0);
                if !has_room {
                    continue;
                }
                let mut patience = Patience(0);
                loop {
                    let missing = self.wish.count as usize - got.ips.len();
                    match self.borrow_from(cx, cidr, missing).await {
                        Ok(Taken::Addresses(ips)) => {
                            got.ips.extend(ips);
                            break;
                        }
                        Ok(Taken::HandleFull) => return Ok(Taken::HandleFull),
                        Err(Trouble::Fatal(error)) if affinity::is_store_failure(&error).is_some() => {
                            return Err(error);
                        }
                        Err(Trouble::Retry) => patience.lost(cx).await?,
                        Err(_) => break,
                    }
                }
                if got.ips.len() >= self.wish.count as usize {
                    return Ok(Taken::Addresses(Vec::new()));
                }
            }
            exhausted.push(pool.cidr.to_string());
        }
        got.say(format!("No IPs available in pools: [{}]", exhausted.join(" ")));
        Ok(Taken::Addresses(Vec::new()))
    }

    async fn borrow_from(&self, cx: &Cx, cidr: Cidr, count: usize) -> Attempt<Taken> {
        let Some(kv) = cx.get(Key::Block(cidr)).await? else { return Ok(Taken::Addresses(Vec::new())) };
        let mut held = Held::new(kv, self.config.ip_cooldown_seconds, cx.now())?;
        self.assign_in(cx, &mut held, count).await
    }

    /// A block to claim, in the order of the owner's walk: one that does not exist, or is ours and has room;
    /// else an empty one that its owner has had for a while, which is taken away from it.
    async fn find(&mut self, cx: &Cx) -> Result<Option<Find>, IpamError> {
        if let Some(find) = self.probe(cx).await {
            return Ok(Some(find));
        }
        let blocks = self.all_blocks(cx).await?;
        let mut empty = Vec::new();
        for pool in self.allowed_pools() {
            let mut walk = self.walk(cx, pool);
            while let Some(cidr) = walk.next_unreserved(&self.reservations) {
                if self.given_up.contains(&cidr) {
                    continue;
                }
                let Some(block) = blocks.get(&cidr) else {
                    return Ok(Some(Find { cidr, row: None, ours: false }));
                };
                if block.free(&self.reservations) == 0 {
                    continue;
                }
                if block.owned_by(&self.owner) {
                    return Ok(Some(Find { cidr, row: None, ours: true }));
                }
                if block.is_empty() {
                    empty.push(cidr);
                }
            }
        }
        for block in empty.iter().filter_map(|cidr| blocks.get(cidr)) {
            if self.take_away(cx, block).await? {
                return Ok(Some(Find { cidr: block.cidr(), row: None, ours: false }));
            }
        }
        Ok(None)
    }

    /// Looks at the first few blocks of the walk. Most claims end here, without listing all blocks.
    async fn probe(&self, cx: &Cx) -> Option<Find> {
        let pool = self.allowed_pools().next()?;
        let mut walk = self.walk(cx, pool);
        let mut cidrs = Vec::with_capacity(PROBES);
        while cidrs.len() < PROBES {
            let Some(cidr) = walk.next_unreserved(&self.reservations) else { break };
            if !self.given_up.contains(&cidr) {
                cidrs.push(cidr);
            }
        }
        let rows = cidrs.iter().map(|cidr| self.owner.affinity_key(*cidr));
        let keys: Vec<Key> = rows.chain(cidrs.iter().copied().map(Key::Block)).collect();
        let mut answers = cx.get_all(keys).await;
        let blocks = answers.split_off(cidrs.len());
        for ((cidr, row), block) in cidrs.into_iter().zip(answers).zip(blocks) {
            match block {
                Ok(None) => return Some(Find { cidr, row: row.ok(), ours: false }),
                Ok(Some(kv)) => {
                    let Ok(held) = Held::new(kv, self.config.ip_cooldown_seconds, cx.now()) else { continue };
                    if held.block.owned_by(&self.owner) && held.block.free(&self.reservations) > 0 {
                        return Some(Find { cidr, row: None, ours: true });
                    }
                }
                Err(_) => {}
            }
        }
        None
    }

    async fn claim(&self, cx: &Cx, find: Find) -> Attempt<Held> {
        let cidr = find.cidr;
        let stored = match find.row {
            Some(row) => row,
            None => cx.get(self.owner.affinity_key(cidr)).await?,
        };
        let row = affinity::pending(cx, &self.owner, cidr, stored, find.ours).await?;
        if find.ours {
            let stored = cx.get(Key::Block(cidr)).await?;
            affinity::block_of(cx, &self.rules(), row, stored).await
        } else {
            affinity::claim(cx, &self.rules(), cidr, row).await
        }
    }

    /// Takes an empty block from its owner, if the owner has had it long enough to have used it.
    async fn take_away(&self, cx: &Cx, block: &Block) -> Result<bool, IpamError> {
        let now = cx.now();
        let old = block.claimed_at().is_none_or(|at| {
            now.as_nanosecond() - at.as_nanosecond() >= i128::from(RECLAIM_AGE_SECONDS) * 1_000_000_000
        });
        let owner = block.raw().affinity.as_deref().map(Owner::parse);
        let cooldown = self.config.ip_cooldown_seconds;
        let result = match owner {
            Some(Some(owner)) if old => {
                let rules = ReleaseRules { must_be_empty: true, sequence: Some(block.sequence()), cooldown };
                let mut patience = Patience(0);
                loop {
                    match affinity::release(cx, &owner, block.cidr(), rules).await {
                        // The owner uses it by now. Looking again tells, and leaves its affinity in order.
                        Err(Trouble::Retry) => patience.lost(cx).await?,
                        other => break other,
                    }
                }
            }
            // Nobody's block that nobody uses is left over from a release that stopped short.
            None => affinity::remove_unowned(cx, block.cidr(), block.sequence(), cooldown).await,
            _ => return Ok(false),
        };
        match result {
            Ok(()) => Ok(true),
            Err(Trouble::Fatal(error)) if affinity::is_store_failure(&error).is_some() => Err(error),
            Err(_) => Ok(false),
        }
    }

    /// Whether a block is stored as something that cannot be read.
    async fn unreadable(&self, cx: &Cx, cidr: Cidr) -> bool {
        let others = cx.get_all(vec![Key::IpamConfig, Key::Block(cidr)]).await;
        matches!(others.as_slice(), [Ok(_), Err(_)])
    }

    /// All blocks of the family that can be read.
    async fn all_blocks(&self, cx: &Cx) -> Result<BTreeMap<Cidr, Block>, IpamError> {
        let items = cx.list(ListOptions::Blocks { version: Some(self.wish.version) }).await?;
        let blocks = items.into_iter().filter_map(|kv| {
            let held = Held::new(kv, self.config.ip_cooldown_seconds, cx.now()).ok()?;
            Some((held.cidr(), held.block))
        });
        Ok(blocks.collect())
    }

    fn allowed_pools(&self) -> impl Iterator<Item = &Pool> {
        self.allowed.iter().filter_map(|place| self.all_pools.get(*place))
    }

    fn walk(&self, cx: &Cx, pool: &Pool) -> BlockWalk {
        let nanos = u64::try_from(cx.now().as_nanosecond()).unwrap_or(0);
        BlockWalk::new(pool.cidr, pool.block_len, &self.owner.name, nanos)
    }
}
