//! Assigning addresses that the caller leaves to us, and the blocks for them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use calico_api::AnyResource;
use calico_model::ipam::IpamConfig;
use calico_model::{AffinityType, Key, KvPair, ListOptions};
use calico_net::{Cidr, IpVersion};
use smol_str::SmolStr;

use super::affinity::{self, ReleaseRules, Rules};
use super::assign::{LOAD_BALANCER, owner_for, write_assignment};
use super::handle::{LimitReached, count_of};
use super::query::held_ips;
use super::{
    Attempt, DEFAULT_MAX_BLOCKS, Held, Patience, Trouble, config_value, handle_value, node_key, objects,
    operation, pool_list, pools_of, reservation_list,
};
use crate::block::{HostReserved, Owner};
use crate::error::{Failure, IpamError};
use crate::machine::{Cx, Fault, Operation, ReadSet};
use crate::pools::{self, Labels, Pool, PoolWishes};
use crate::reservation::Reservations;

mod search;

/// Blocks of the owner that are looked at side by side.
const BLOCK_BATCH: usize = 4;

/// Addresses to be assigned.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AutoAssignArgs {
    /// How many of IPv4.
    pub num4: u32,
    /// How many of IPv6.
    pub num6: u32,
    /// Handle to assign them under.
    pub handle: Option<SmolStr>,
    /// Kept with the addresses.
    pub attributes: BTreeMap<SmolStr, SmolStr>,
    /// Node's name; for load balancers the name of their owner.
    pub host: SmolStr,
    /// IPv4 pools to take from; empty leaves the choice.
    pub pools4: Vec<Cidr>,
    /// IPv6 pools to take from; empty leaves the choice.
    pub pools6: Vec<Cidr>,
    /// Most blocks of the owner per family; 0 leaves it to the configuration.
    pub max_blocks_per_host: u32,
    /// Addresses that new IPv4 blocks set aside.
    pub reserved4: Option<HostReserved>,
    /// Addresses that new IPv6 blocks set aside.
    pub reserved6: Option<HostReserved>,
    /// What the addresses are for. Required.
    pub intended_use: SmolStr,
    /// Most addresses of one family under the handle; 0 is no limit. If the handle has them already, they are
    /// the answer.
    pub max_per_handle: u32,
    /// Labels of the workload's namespace.
    pub namespace_labels: Labels,
    /// Blocks to look at first if the owner has them, for example those that served it last.
    pub hints: Vec<Cidr>,
}

/// Addresses of one family that a request got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignments {
    /// Family.
    pub version: IpVersion,
    /// How many were asked for.
    pub requested: u32,
    /// The addresses, each with the prefix length of its block.
    pub ips: Vec<Cidr>,
    /// Why there are fewer than asked for; each once, in order.
    pub messages: Vec<String>,
    /// Addresses that each block sets aside.
    pub reserved: Option<HostReserved>,
}

/// What became of [`auto_assign`].
#[derive(Debug, Clone, Default)]
pub struct AutoAssigned {
    /// IPv4, if asked for. Counts also beside an error.
    pub v4: Option<Assignments>,
    /// IPv6, if asked for. Counts also beside an error.
    pub v6: Option<Assignments>,
    /// Why it ended early. Addresses that were assigned before stay assigned.
    pub error: Option<IpamError>,
}

/// One block per family for a host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EnsuredBlocks {
    /// IPv4, if asked for.
    pub v4: Option<Cidr>,
    /// IPv6, if asked for.
    pub v6: Option<Cidr>,
}

/// What one family of a request is to get.
struct Wish<'a> {
    args: &'a AutoAssignArgs,
    version: IpVersion,
    count: u32,
    requested_pools: &'a [Cidr],
    reserved: Option<&'a HostReserved>,
}

/// What a family's search works on.
struct Search<'a> {
    wish: &'a Wish<'a>,
    owner: Owner,
    config: IpamConfig,
    reservations: Reservations,
    /// Every pool.
    all_pools: Vec<Pool>,
    /// Those to draw from, as places in `all_pools`.
    allowed: Vec<usize>,
    node_labels: Labels,
    candidates: VecDeque<Candidate>,
    /// Blocks that could not be claimed and are not worth another try.
    given_up: BTreeSet<Cidr>,
    /// Blocks of the owner in the allowed pools.
    owned: BTreeSet<Cidr>,
    limit: u32,
}

/// A block of the owner that may have free addresses.
struct Candidate {
    cidr: Cidr,
    state: CandidateState,
}

enum CandidateState {
    /// The affinity as listed.
    Listed(Box<KvPair>),
    /// The affinity as listed, and the block as read after it.
    Seen(Box<(KvPair, Result<Option<KvPair>, Failure>)>),
    /// In use.
    Ready(Box<Held>),
    /// Everything must be read again.
    Lost,
}

enum Taken {
    Addresses(Vec<Cidr>),
    HandleFull,
}

// === impl Assignments ===

impl Assignments {
    /// Why there are fewer addresses than asked for, as one text; `None` if there are enough.
    pub fn partial_fulfillment(&self) -> Option<String> {
        if self.ips.len() >= self.requested as usize {
            return None;
        }
        let (got, asked, version) = (self.ips.len(), self.requested, self.version.number());
        let mut text = format!("Assigned {got} out of {asked} requested IPv{version} addresses");
        for message in &self.messages {
            text.push_str("; ");
            text.push_str(message);
        }
        if let Some(reserved) = &self.reserved {
            text.push_str("; HostReservedAttr: ");
            text.push_str(&reserved.handle);
        }
        Some(text)
    }

    /// The blocks that the addresses come from, each once, sorted.
    pub fn blocks(&self) -> Vec<Cidr> {
        self.ips.iter().map(Cidr::masked).collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn say(&mut self, message: String) {
        if !self.messages.contains(&message) {
            self.messages.push(message);
        }
    }
}

// === impl AutoAssigned ===

impl AutoAssigned {
    /// The addresses of one family.
    pub fn family(&self, version: IpVersion) -> Option<&Assignments> {
        match version {
            IpVersion::V4 => self.v4.as_ref(),
            IpVersion::V6 => self.v6.as_ref(),
        }
    }
}

// === impl AutoAssignArgs ===

impl AutoAssignArgs {
    fn wish(&self, version: IpVersion) -> Wish<'_> {
        let (count, requested_pools, reserved) = match version {
            IpVersion::V4 => (self.num4, &self.pools4, &self.reserved4),
            IpVersion::V6 => (self.num6, &self.pools6, &self.reserved6),
        };
        Wish { args: self, version, count, requested_pools, reserved: reserved.as_ref() }
    }
}

/// What [`auto_assign`] will read first, for [`crate::Atomic::new`].
pub fn auto_assign_reads(args: &AutoAssignArgs) -> ReadSet {
    let owner = owner_for(&args.intended_use, &args.host);
    let mut set =
        ReadSet { keys: vec![Key::IpamConfig], lists: vec![pool_list(), reservation_list()], ordered: true };
    if owner.affinity == AffinityType::Host {
        set.keys.push(node_key(&owner.name));
    }
    set.keys.extend(args.handle.clone().map(Key::IpamHandle));
    for version in IpVersion::BOTH {
        if args.wish(version).count > 0 {
            set.lists.push(rows_of(&owner, version));
            set.keys.extend(args.hints.iter().filter(|h| h.version() == version).copied().map(Key::Block));
        }
    }
    set
}

/// Assigns addresses from blocks of the owner, from blocks that it claims, and unless strict affinity is on
/// from blocks of others. Fewer addresses than asked for are no error; [`Assignments::messages`] says why.
pub fn auto_assign(args: AutoAssignArgs) -> Operation<AutoAssigned> {
    operation(|cx| async move {
        let mut outcome = AutoAssigned::default();
        for version in IpVersion::BOTH {
            let wish = args.wish(version);
            if wish.count == 0 {
                continue;
            }
            let mut got = Assignments {
                version,
                requested: wish.count,
                ips: Vec::new(),
                messages: Vec::new(),
                reserved: wish.reserved.cloned(),
            };
            let mut begun = false;
            let result = assign_family(&cx, &wish, &mut got, &mut begun).await;
            let slot = match version {
                IpVersion::V4 => &mut outcome.v4,
                IpVersion::V6 => &mut outcome.v6,
            };
            *slot = begun.then_some(got);
            if let Err(error) = result {
                outcome.error = Some(error);
                break;
            }
        }
        outcome
    })
}

/// Makes sure that the host of `args` has a block with a free address, per family for which `reserved4` or
/// `reserved6` is set. Assigns nothing.
pub fn ensure_blocks(args: AutoAssignArgs) -> Operation<Result<EnsuredBlocks, IpamError>> {
    operation(|cx| async move {
        let mut out = EnsuredBlocks::default();
        let args = AutoAssignArgs { intended_use: SmolStr::new_static("Workload"), ..args };
        for version in IpVersion::BOTH {
            let wish = args.wish(version);
            let Some(reserved) = wish.reserved else { continue };
            if reserved.count() == 0 {
                return Err(IpamError::BadHostReserved);
            }
            let mut search = Search::prepare(&cx, &wish).await?;
            let mut got = Assignments {
                version,
                requested: 0,
                ips: Vec::new(),
                messages: Vec::new(),
                reserved: Some(reserved.clone()),
            };
            let block = search.ensure(&cx, &mut got).await?;
            match version {
                IpVersion::V4 => out.v4 = Some(block),
                IpVersion::V6 => out.v6 = Some(block),
            }
        }
        Ok(out)
    })
}

/// Says by `begun` whether it came so far as to look for addresses.
async fn assign_family(
    cx: &Cx,
    wish: &Wish<'_>,
    got: &mut Assignments,
    begun: &mut bool,
) -> Result<(), IpamError> {
    let args = wish.args;
    if args.intended_use.is_empty() {
        return Err(IpamError::UseRequired);
    }
    if wish.requested_pools.iter().any(|p| p.version() != wish.version) {
        return Err(IpamError::PoolOfOtherFamily { wanted: wish.version });
    }
    let mut patience = Patience(0);
    loop {
        let mut search = Search::prepare(cx, wish).await?;
        *begun = true;
        if !search.handle_full(cx).await? {
            match search.run(cx, got).await? {
                Taken::Addresses(_) => return Ok(()),
                Taken::HandleFull => {}
            }
        }
        // Addresses that the handle has already are the answer. If they are not all there, somebody is about to
        // store them, or gave up before.
        let held = held_by_handle(cx, wish).await?;
        if held.len() >= wish.count as usize {
            got.ips = held.into_iter().take(wish.count as usize).collect();
            return Ok(());
        }
        if !got.ips.is_empty() {
            return Err(handle_limit(args));
        }
        patience.lost(cx).await.map_err(|_| handle_limit(args))?;
    }
}

fn handle_limit(args: &AutoAssignArgs) -> IpamError {
    IpamError::HandleLimit { handle: args.handle.clone().unwrap_or_default(), limit: args.max_per_handle }
}

async fn held_by_handle(cx: &Cx, wish: &Wish<'_>) -> Result<Vec<Cidr>, IpamError> {
    let Some(handle) = &wish.args.handle else { return Ok(Vec::new()) };
    match held_ips(cx, handle).await {
        Ok(ips) => Ok(ips.into_iter().map(Cidr::host).filter(|ip| ip.version() == wish.version).collect()),
        Err(IpamError::DoesNotExist { .. }) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn rows_of(owner: &Owner, version: IpVersion) -> ListOptions {
    ListOptions::BlockAffinities {
        affinity: owner.affinity,
        owner: Some(owner.name.clone()),
        version: Some(version),
    }
}

// === impl Search ===

impl<'a> Search<'a> {
    /// Reads what the search needs and decides which pools and blocks it may use.
    async fn prepare(cx: &Cx, wish: &'a Wish<'a>) -> Result<Search<'a>, IpamError> {
        let args = wish.args;
        let owner = owner_for(&args.intended_use, &args.host);
        let is_node = args.intended_use != LOAD_BALANCER;
        let mut keys = vec![Key::IpamConfig];
        if is_node {
            keys.push(node_key(&args.host));
        }
        let lists = vec![pool_list(), reservation_list(), rows_of(&owner, wish.version)];
        let answers = cx.read(ReadSet { keys, lists, ordered: false }).await;
        let mut lists = answers.lists.into_iter().map(|l| l.map_err(IpamError::Store));
        let mut next_list = || lists.next().unwrap_or(Ok(Vec::new()));
        let (pool_items, reservation_items, rows) = (next_list()?, next_list()?, next_list()?);
        let mut keys = answers.keys.into_iter().map(|k| k.map_err(IpamError::Store));
        let config = config_value(keys.next().unwrap_or(Ok(None))?.as_ref())?;
        let node_labels = if is_node {
            let node = keys
                .next()
                .unwrap_or(Ok(None))?
                .ok_or_else(|| IpamError::DoesNotExist { id: super::entry_name(&node_key(&args.host)) })?;
            objects(std::slice::from_ref(&node)).next().map(labels_of).unwrap_or_default()
        } else {
            Labels::new()
        };
        let all_pools = pools_of(&pool_items);
        let wishes = PoolWishes {
            version: wish.version,
            node: &args.host,
            node_labels: &node_labels,
            namespace_labels: &args.namespace_labels,
            requested: wish.requested_pools,
            reserved_per_block: wish.reserved.map_or(0, HostReserved::count),
        };
        let chosen = pools::select(&all_pools, &wishes)?;
        let allowed = pools::filter_use(&chosen, &args.intended_use)?;
        let place = |pool: &Pool| all_pools.iter().position(|p| std::ptr::eq(p, pool));
        let chosen: Vec<usize> = chosen.into_iter().filter_map(place).collect();
        let allowed: Vec<usize> = allowed.into_iter().filter_map(place).collect();
        let limit = match (args.max_blocks_per_host, config.max_blocks_per_host) {
            (0, 0) => DEFAULT_MAX_BLOCKS,
            (0, n) | (n, 0) => n,
            (a, b) => a.min(b),
        };
        let mut search = Self {
            wish,
            owner,
            config,
            reservations: Reservations::from_resources(objects(&reservation_items)),
            all_pools,
            allowed,
            node_labels,
            candidates: VecDeque::new(),
            given_up: BTreeSet::new(),
            owned: BTreeSet::new(),
            limit,
        };
        search.sort_rows(cx, rows, &chosen).await?;
        Ok(search)
    }

    /// Makes candidates of the affinities in allowed pools, and releases those whose pool has left the node.
    async fn sort_rows(&mut self, cx: &Cx, rows: Vec<KvPair>, chosen: &[usize]) -> Result<(), IpamError> {
        let mut unusable = Vec::new();
        for row in rows {
            let Key::BlockAffinity { cidr, .. } = row.key else { continue };
            let inside = |places: &[usize]| places.iter().any(|p| self.all_pools[*p].cidr.covers(&cidr));
            if inside(&self.allowed) {
                self.owned.insert(cidr);
                let first = self.wish.args.hints.contains(&cidr);
                let candidate = Candidate { cidr, state: CandidateState::Listed(Box::new(row)) };
                if first {
                    self.candidates.push_front(candidate);
                } else {
                    self.candidates.push_back(candidate);
                }
            } else if !inside(chosen) {
                unusable.push(cidr);
            }
        }
        for cidr in unusable {
            let Some(pool) = pools::enabled_pool_of(&self.all_pools, &cidr) else { continue };
            if pool.selects_node(&self.node_labels)? {
                continue;
            }
            let cooldown = self.config.ip_cooldown_seconds;
            let rules = ReleaseRules { must_be_empty: true, sequence: None, cooldown };
            let mut patience = Patience(0);
            loop {
                let result = match affinity::release(cx, &self.owner, cidr, rules).await {
                    Ok(()) => cx.commit().await.map_err(Trouble::from),
                    Err(trouble) => Err(trouble),
                };
                match result {
                    Err(Trouble::Retry) => patience.lost(cx).await?,
                    // A block in use, or one that is another's by now, is no reason to refuse addresses.
                    _ => break,
                }
            }
        }
        Ok(())
    }

    /// Whether the handle has so many addresses that it cannot get those asked for.
    async fn handle_full(&self, cx: &Cx) -> Result<bool, IpamError> {
        let args = self.wish.args;
        let Some(handle) = args.handle.as_ref().filter(|_| args.max_per_handle > 0) else {
            return Ok(false);
        };
        let Some(kv) = cx.get(Key::IpamHandle(handle.clone())).await? else { return Ok(false) };
        let count = count_of(handle_value(&kv)?, self.wish.version);
        Ok(count.saturating_add(u64::from(self.wish.count)) > u64::from(args.max_per_handle))
    }

    fn rules(&self) -> Rules<'_> {
        Rules { owner: &self.owner, reserved: self.wish.reserved, cooldown: self.config.ip_cooldown_seconds }
    }

    /// Assigns until the wish is fulfilled or nothing is left to take.
    async fn run(&mut self, cx: &Cx, got: &mut Assignments) -> Result<Taken, IpamError> {
        let mut patience = Patience(0);
        while got.ips.len() < self.wish.count as usize {
            let Some(candidate) = self.next_candidate(cx).await else {
                match self.claim_one(cx, &mut patience, got).await? {
                    true => continue,
                    false if self.config.strict_affinity => {
                        got.say("No more free affine blocks and strict affinity enabled".to_owned());
                        break;
                    }
                    false => return self.borrow(cx, got).await,
                }
            };
            let cidr = candidate.cidr;
            let missing = self.wish.count as usize - got.ips.len();
            match self.take_from(cx, candidate, missing).await {
                Ok(Taken::Addresses(ips)) => {
                    patience.won();
                    got.ips.extend(ips);
                }
                Ok(Taken::HandleFull) => return Ok(Taken::HandleFull),
                Err(Trouble::Retry) => {
                    patience.lost(cx).await?;
                    self.candidates.push_front(Candidate { cidr, state: CandidateState::Lost });
                }
                Err(Trouble::Claimed | Trouble::Stale) => self.lost_block(cx, cidr).await?,
                Err(Trouble::Fatal(error)) => return Err(error),
            }
        }
        Ok(Taken::Addresses(Vec::new()))
    }

    /// Notes that a block is not the owner's any more, and lets go of its affinity.
    async fn lost_block(&mut self, cx: &Cx, cidr: Cidr) -> Result<(), IpamError> {
        self.owned.remove(&cidr);
        match cx.commit().await {
            Err(Fault::Failed(failure)) => Err(IpamError::Store(failure)),
            // Whoever changed the affinity first has use for it.
            _ => Ok(()),
        }
    }

    /// The next block of the owner to look at. Reads a few blocks at once.
    async fn next_candidate(&mut self, cx: &Cx) -> Option<Candidate> {
        while self.candidates.front().is_some_and(|c| self.reservations.covers(&c.cidr)) {
            self.candidates.pop_front();
        }
        let first = self.candidates.front()?;
        if matches!(first.state, CandidateState::Listed(_)) {
            // A block that served last will most likely serve again.
            let batch = if self.wish.args.hints.contains(&first.cidr) { 1 } else { BLOCK_BATCH };
            let listed = |c: &&Candidate| matches!(c.state, CandidateState::Listed(_));
            let keys: Vec<Key> =
                self.candidates.iter().take_while(listed).take(batch).map(|c| Key::Block(c.cidr)).collect();
            let answers = cx.get_all(keys).await;
            for (candidate, answer) in self.candidates.iter_mut().zip(answers) {
                let state = std::mem::replace(&mut candidate.state, CandidateState::Lost);
                candidate.state = match state {
                    CandidateState::Listed(row) => CandidateState::Seen(Box::new((*row, answer))),
                    other => other,
                };
            }
        }
        self.candidates.pop_front()
    }

    /// Assigns up to `count` addresses of one block.
    async fn take_from(&self, cx: &Cx, candidate: Candidate, count: usize) -> Attempt<Taken> {
        let nothing = Ok(Taken::Addresses(Vec::new()));
        let held = match self.ready(cx, candidate).await {
            Ok(Some(held)) => held,
            Ok(None) => return nothing,
            Err(Trouble::Fatal(error)) if affinity::is_store_failure(&error).is_none() => return nothing,
            Err(trouble) => return Err(trouble),
        };
        let Some(mut held) = held.usable(&self.reservations) else { return nothing };
        self.assign_in(cx, &mut held, count).await
    }

    async fn assign_in(&self, cx: &Cx, held: &mut Held, count: usize) -> Attempt<Taken> {
        let args = self.wish.args;
        let ips = held.block.auto_assign(count, args.handle.as_ref(), &args.attributes, &self.reservations);
        if ips.is_empty() {
            return Ok(Taken::Addresses(Vec::new()));
        }
        let n = ips.len() as u64;
        match write_assignment(cx, held, args.handle.as_ref(), n, args.max_per_handle).await? {
            Ok(()) => {
                let len = held.cidr().prefix_len();
                Ok(Taken::Addresses(ips.into_iter().filter_map(|ip| Cidr::new(ip, len)).collect()))
            }
            Err(LimitReached) => Ok(Taken::HandleFull),
        }
    }

    /// The candidate's block, once it is certain that the owner has it.
    async fn ready(&self, cx: &Cx, candidate: Candidate) -> Attempt<Option<Held>> {
        let (row, stored) = match candidate.state {
            CandidateState::Ready(held) => return Ok(Some(*held)),
            CandidateState::Seen(seen) => match *seen {
                (row, Ok(stored)) => (row, stored),
                // One block that cannot be read is no reason to refuse addresses of others.
                (_, Err(_)) => return Ok(None),
            },
            CandidateState::Listed(_) | CandidateState::Lost => {
                let key = self.owner.affinity_key(candidate.cidr);
                let (row, stored) = cx.get_in_order(key, Key::Block(candidate.cidr)).await?;
                match row {
                    Some(row) => (row, stored),
                    None => return Err(Trouble::Stale),
                }
            }
        };
        affinity::block_of(cx, &self.rules(), row, stored).await.map(Some)
    }
}

impl Held {
    /// Itself, if auto-assign can take from it.
    fn usable(self, reservations: &Reservations) -> Option<Self> {
        (self.block.free(reservations) > 0).then_some(self)
    }
}

fn labels_of(object: &AnyResource) -> Labels {
    object.metadata().labels.clone()
}
