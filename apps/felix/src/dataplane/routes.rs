//! The main routing table of one family: which routes should be there, which are, and the way from one to the other.
//!
//! In: routes that managers want, each of a [`Class`] and on a link by name, and the state of links. Out: the fewest
//! changes that make the kernel's table hold them. Several may want the same route: the class that sorts first wins,
//! within a class the newer link (the higher index); whoever wants a route on a link that is not up waits.
//!
//! Always holds: only routes that are ours by [`Ownership`] are removed; a failed change stays pending; a route to a
//! single workload that moved or ended takes its tracked connections along.

mod owner;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use calico_net::{Cidr, IpVersion};
use calico_netfilter::DeltaTracker;
use calico_netlink::{NetlinkError, Route, RouteFilter, RouteKind, RouteScope};
use smol_str::SmolStr;

use super::net::{Change, NetKernel};
pub(crate) use owner::Ownership;

/// Time for which a route that nobody wants yet is left on a new workload link: who made the link may have made the
/// route too, ahead of our knowing.
const GRACE: Duration = Duration::from_secs(10);
/// Longest time that the event of a link that went should take.
const LINK_EVENT: Duration = Duration::from_secs(1);
/// Links that are read one by one; if there are more, the whole table is read.
const FEW_LINKS: usize = 8;
/// Priority that the kernel gives IPv6 routes without one.
const V6_PRIORITY: u32 = 1024;
/// Index of the loopback link.
const LOOPBACK: u32 = 1;

/// Who wants a route; the first wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Class {
    /// To a workload of this node.
    LocalWorkload,
    /// To a node on this subnet, of a VXLAN pool.
    VxlanSameSubnet,
    /// Through the VXLAN tunnel.
    VxlanTunnel,
    /// To another node, of a pool without encapsulation.
    NoEncap,
    /// Nowhere: unused addresses of this node's VXLAN blocks.
    BlackholeVxlan,
    /// Nowhere: unused addresses of this node's other blocks.
    BlackholeNoEncap,
}

/// Where a route leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Hop {
    /// The destination is on the link itself.
    Link,
    /// Through a router that is on the link, whatever its address.
    Router(IpAddr),
    /// Nowhere.
    Blackhole,
}

/// A route that is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) dst: Cidr,
    /// Metric; 0 for the kernel's default.
    pub(crate) priority: u32,
    pub(crate) hop: Hop,
    /// Largest packet in bytes.
    pub(crate) mtu: Option<u32>,
    /// It is of the protocol that is ours alone.
    pub(crate) exclusive: bool,
}

/// What the kernel tells routes of one table apart by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Key {
    dst: Cidr,
    tos: u8,
    priority: u32,
}

/// Who wants a route, and on which link; no link for those that lead nowhere.
type Source = (Class, Option<SmolStr>);

/// What an apply did.
#[derive(Debug, Default)]
pub(crate) struct RouteReport {
    /// Changes that the kernel carried out.
    pub(crate) written: usize,
    /// Changes that failed and stay pending.
    pub(crate) failures: Vec<NetlinkError>,
    /// When something becomes due by time alone.
    pub(crate) due: Option<Instant>,
    /// The whole table was read, and how long that took.
    pub(crate) full_read: Option<Duration>,
    /// Some links' routes were read, and how long that took.
    pub(crate) partial_read: Option<Duration>,
    /// Connections were forgotten, and how long that took.
    pub(crate) conntrack: Option<Duration>,
    /// Differences that a read found where none was expected.
    pub(crate) repaired: usize,
}

/// The table.
#[derive(Debug)]
pub(crate) struct RouteTable {
    version: IpVersion,
    owner: Ownership,
    source_address: Option<IpAddr>,
    /// What is wanted, by who wants it.
    sources: BTreeMap<Source, BTreeMap<Key, Target>>,
    /// Who wants a route.
    candidates: HashMap<Key, BTreeSet<Source>>,
    /// Routes whose winner must be found anew.
    undecided: BTreeSet<Key>,
    /// Links that are up, by name.
    links: HashMap<SmolStr, u32>,
    /// All links, by name.
    indexes: HashMap<SmolStr, u32>,
    /// Names and first sightings of all links, by index.
    seen: HashMap<u32, (SmolStr, Instant)>,
    /// Links that some wish led to: what nobody wants there is a leftover.
    familiar: HashSet<u32>,
    tracker: DeltaTracker<Key, Route>,
    /// Further routes of ours with an identity that another one has; the kernel allows that.
    surplus: Vec<Route>,
    /// Links that single workload addresses were last routed to.
    workloads: HashMap<Key, u32>,
    /// Addresses whose connections must be forgotten before their new routes are made.
    forget: BTreeSet<IpAddr>,
    read_all: bool,
    read_links: BTreeSet<u32>,
    /// The first read has happened.
    known: bool,
}

// === impl RouteTable ===

impl RouteTable {
    /// A table of which nothing is known.
    pub(crate) fn new(version: IpVersion, owner: Ownership, source_address: Option<IpAddr>) -> Self {
        Self {
            version,
            owner,
            source_address: source_address.filter(|a| IpVersion::of(*a) == version),
            sources: BTreeMap::new(),
            candidates: HashMap::new(),
            undecided: BTreeSet::new(),
            links: HashMap::new(),
            indexes: HashMap::new(),
            seen: HashMap::new(),
            familiar: HashSet::new(),
            tracker: DeltaTracker::default(),
            surplus: Vec::new(),
            workloads: HashMap::new(),
            forget: BTreeSet::new(),
            read_all: true,
            read_links: BTreeSet::new(),
            known: false,
        }
    }

    /// Makes the routes of `class` on `link` exactly `targets`.
    pub(crate) fn replace(
        &mut self,
        class: Class,
        link: Option<&SmolStr>,
        targets: impl IntoIterator<Item = Target>,
    ) {
        let source = (class, link.cloned());
        let new: BTreeMap<Key, Target> = targets.into_iter().map(|t| (self.key(&t), t)).collect();
        let old = self.sources.get(&source);
        let gone: Vec<Key> =
            old.into_iter().flat_map(|o| o.keys()).filter(|k| !new.contains_key(k)).copied().collect();
        for key in gone {
            self.withdraw(&source, key);
        }
        for (key, target) in new {
            self.want(&source, key, target);
        }
    }

    /// Wants one more route of `class` on `link`, in place of an older one to the same destination.
    pub(crate) fn update(&mut self, class: Class, link: Option<&SmolStr>, target: Target) {
        let key = self.key(&target);
        self.want(&(class, link.cloned()), key, target);
    }

    /// Wants the route of `class` on `link` to `dst` no more.
    pub(crate) fn remove(&mut self, class: Class, link: Option<&SmolStr>, dst: Cidr) {
        let source = (class, link.cloned());
        let range = Key { dst, tos: 0, priority: 0 }..=Key { dst, tos: 0, priority: u32::MAX };
        let keys: Vec<Key> =
            self.sources.get(&source).map(|s| s.range(range).map(|(k, _)| *k).collect()).unwrap_or_default();
        for key in keys {
            self.withdraw(&source, key);
        }
    }

    fn want(&mut self, source: &Source, key: Key, target: Target) {
        let of_source = self.sources.entry(source.clone()).or_default();
        if of_source.get(&key) == Some(&target) {
            return;
        }
        of_source.insert(key, target);
        self.candidates.entry(key).or_default().insert(source.clone());
        self.undecided.insert(key);
    }

    fn withdraw(&mut self, source: &Source, key: Key) {
        if let Some(of_source) = self.sources.get_mut(source) {
            of_source.remove(&key);
            if of_source.is_empty() {
                self.sources.remove(source);
            }
        }
        if let Some(who) = self.candidates.get_mut(&key) {
            who.remove(source);
            if who.is_empty() {
                self.candidates.remove(&key);
            }
        }
        self.undecided.insert(key);
    }

    fn key(&self, target: &Target) -> Key {
        Key { dst: target.dst.masked(), tos: 0, priority: self.priority(target.priority) }
    }

    fn priority(&self, priority: u32) -> u32 {
        match (self.version, priority) {
            (IpVersion::V6, 0) => V6_PRIORITY,
            (_, other) => other,
        }
    }

    /// Takes in a link's state. `interrupted` says that it was down or away since the last call.
    pub(crate) fn on_link(&mut self, name: &SmolStr, state: Option<(u32, bool, Instant)>, interrupted: bool) {
        let up = state.filter(|(_, up, _)| *up).map(|(index, ..)| index);
        let replaced = match state {
            Some((index, _, since)) => {
                self.seen.insert(index, (name.clone(), since));
                self.indexes.insert(name.clone(), index).filter(|old| *old != index)
            }
            None => self.indexes.remove(name),
        };
        if let Some(old) = replaced {
            self.seen.remove(&old);
            self.familiar.remove(&old);
        }
        let before = match up {
            Some(index) => self.links.insert(name.clone(), index),
            None => self.links.remove(name),
        };
        if before != up || interrupted {
            // Routes may have gone with the link, and others come with it.
            self.read_links.extend(before.into_iter().chain(up));
            let sources: Vec<Source> =
                self.sources.keys().filter(|(_, l)| l.as_ref() == Some(name)).cloned().collect();
            for source in sources {
                self.undecided.extend(self.sources.get(&source).into_iter().flat_map(|s| s.keys().copied()));
            }
        }
    }

    /// Reads the whole table before the next apply.
    pub(crate) fn resync(&mut self) {
        self.read_all = true;
    }

    /// Routes that are in the kernel and ours, as far as known.
    pub(crate) fn len(&self) -> usize {
        self.tracker.actual_len()
    }

    /// True if the kernel has the routes of `class` on `link`, or better ones to the same destinations.
    pub(crate) fn is_programmed(&self, class: Class, link: &SmolStr) -> bool {
        let keys = self.sources.get(&(class, Some(link.clone())));
        let done = |k: &Key| {
            let wanted = self.tracker.desired(k);
            wanted.is_some() && wanted == self.tracker.actual(k)
        };
        keys.is_none_or(|keys| keys.keys().all(done))
    }

    /// Links that are up.
    pub(crate) fn links_len(&self) -> usize {
        self.links.len()
    }

    /// Makes the kernel's table hold what is wanted, and what is ours but not wanted go.
    ///
    /// # Errors
    /// If the table cannot be read or written at all; what was not done stays to be done.
    pub(crate) fn apply(
        &mut self,
        net: &mut impl NetKernel,
        now: Instant,
    ) -> Result<RouteReport, NetlinkError> {
        let mut report = RouteReport::default();
        self.decide();
        self.read(net, &mut report)?;
        let result = self.write(net, now, &mut report);
        if result.is_err() {
            self.read_all = true;
        }
        result.map(|()| report)
    }

    /// Finds the winner for each undecided route.
    fn decide(&mut self) {
        for key in std::mem::take(&mut self.undecided) {
            let winner = self.winner(&key);
            self.note_workload(&key, winner.as_ref());
            match winner {
                Some((_, route)) => {
                    self.familiar.extend(route.oif);
                    self.tracker.set(key, route);
                }
                None => self.tracker.remove(&key),
            }
        }
    }

    fn winner(&self, key: &Key) -> Option<(Class, Route)> {
        let mut best: Option<(Class, u32, &Target)> = None;
        for source in self.candidates.get(key)? {
            let (class, link) = source;
            let index = match link {
                Some(name) => match self.links.get(name) {
                    Some(index) => *index,
                    None => continue,
                },
                None => 0,
            };
            let Some(target) = self.sources.get(source).and_then(|s| s.get(key)) else { continue };
            if best.is_none_or(|(c, i, _)| (*class, u32::MAX - index) < (c, u32::MAX - i)) {
                best = Some((*class, index, target));
            }
        }
        best.map(|(class, index, target)| (class, self.route(key, index, target)))
    }

    fn route(&self, key: &Key, index: u32, target: &Target) -> Route {
        let mut route = Route::new(key.dst);
        route.tos = key.tos;
        route.priority = key.priority;
        route.protocol = if target.exclusive { self.owner.exclusive() } else { self.owner.device_protocol() };
        route.mtu = target.mtu;
        match &target.hop {
            Hop::Blackhole => {
                route.kind = RouteKind::Blackhole;
                // So the kernel reports it.
                route.oif = (self.version == IpVersion::V6).then_some(LOOPBACK);
                return route;
            }
            Hop::Link => {
                // IPv6 knows no scopes.
                if self.version == IpVersion::V4 {
                    route.scope = RouteScope::LINK;
                }
            }
            Hop::Router(gateway) => {
                route.gateway = Some(*gateway);
                route.onlink = true;
            }
        }
        route.oif = Some(index);
        route.src = self.source_address;
        route
    }

    /// Keeps track of where single workload addresses are, and notes those whose connections must go.
    fn note_workload(&mut self, key: &Key, winner: Option<&(Class, Route)>) {
        if !key.dst.is_host() {
            return;
        }
        match winner {
            Some((Class::LocalWorkload, route)) => {
                let Some(index) = route.oif else { return };
                if self.workloads.insert(*key, index).is_some_and(|before| before != index) {
                    self.forget.insert(key.dst.addr());
                }
            }
            _ => {
                // A workload that is wanted, on a link that is down for the moment, keeps its connections.
                let waits = self
                    .candidates
                    .get(key)
                    .is_some_and(|who| who.iter().any(|(class, _)| *class == Class::LocalWorkload));
                if !waits && self.workloads.remove(key).is_some() {
                    self.forget.insert(key.dst.addr());
                }
            }
        }
    }

    fn read(&mut self, net: &mut impl NetKernel, report: &mut RouteReport) -> Result<(), NetlinkError> {
        let started = Instant::now();
        if !self.read_all && self.read_links.len() <= FEW_LINKS {
            for index in std::mem::take(&mut self.read_links) {
                let routes = net.routes(&RouteFilter::main(self.version).via(index)).inspect_err(|_| {
                    self.read_all = true;
                })?;
                self.forget_routes_via(index);
                self.take_in(routes);
                report.partial_read = Some(started.elapsed());
            }
            return Ok(());
        }
        self.read_all = true;
        let routes = net.routes(&RouteFilter::main(self.version))?;
        let expected = self.known.then(|| self.tracker.dirty_len());
        self.tracker.saw_nothing();
        self.surplus.clear();
        self.take_in(routes);
        if let Some(expected) = expected {
            report.repaired = (self.tracker.dirty_len() + self.surplus.len()).saturating_sub(expected);
        }
        self.read_links.clear();
        self.read_all = false;
        self.known = true;
        report.full_read = Some(started.elapsed());
        Ok(())
    }

    fn forget_routes_via(&mut self, index: u32) {
        self.surplus.retain(|r| r.oif != Some(index));
        let via: Vec<Key> = self
            .tracker
            .all_actual()
            .filter(|(_, r)| r.oif == Some(index) && r.kind != RouteKind::Blackhole)
            .map(|(k, _)| *k)
            .collect();
        for key in via {
            self.tracker.saw_absent(&key);
        }
    }

    /// Takes in routes that were read.
    fn take_in(&mut self, routes: Vec<Route>) {
        for mut route in routes {
            route.priority = self.priority(route.priority);
            let key = Key { dst: route.dst, tos: route.tos, priority: route.priority };
            let link = route.oif.and_then(|i| self.seen.get(&i)).map(|(name, _)| name.as_str());
            let ours = self.owner.owns(&route, link);
            let wanted = self.tracker.desired(&key);
            if !ours && wanted.is_none() {
                continue;
            }
            if ours
                && key.dst.is_host()
                && let Some(index) = route.oif
                && link.is_some_and(|l| self.owner.is_workload(l))
            {
                match self.workloads.get(&key) {
                    // Left by an earlier run: if nobody wants it, its connections go with it.
                    None => {
                        self.workloads.insert(key, index);
                        self.undecided.insert(key);
                    }
                    // It moved while nobody watched.
                    Some(wanted) if *wanted != index => {
                        self.forget.insert(key.dst.addr());
                    }
                    Some(_) => {}
                }
            }
            match self.tracker.actual(&key) {
                Some(known) if *known == route => {}
                Some(known) if wanted == Some(&route) => {
                    let other = known.clone();
                    self.keep_surplus(other);
                    self.tracker.saw(key, route);
                }
                Some(_) if ours => self.keep_surplus(route),
                Some(_) => {}
                None => self.tracker.saw(key, route),
            }
        }
    }

    fn keep_surplus(&mut self, route: Route) {
        if !self.surplus.contains(&route) {
            self.surplus.push(route);
        }
    }

    fn write(
        &mut self,
        net: &mut impl NetKernel,
        now: Instant,
        report: &mut RouteReport,
    ) -> Result<(), NetlinkError> {
        // Routes that a read found may have to be noted.
        self.decide();
        self.delete(net, now, report)?;
        if !self.forget.is_empty() {
            let started = Instant::now();
            match net.forget_connections(&self.forget) {
                Ok(_) => self.forget.clear(),
                Err(e) => report.failures.push(e),
            }
            report.conntrack = Some(started.elapsed());
        }
        let updates: Vec<(Key, Route)> =
            self.tracker.updates().into_iter().map(|(k, r)| (*k, r.clone())).collect();
        if updates.is_empty() {
            return Ok(());
        }
        let changes: Vec<Change> = updates.iter().map(|(_, r)| Change::ReplaceRoute(r.clone())).collect();
        for ((key, route), result) in updates.into_iter().zip(net.write(&changes)?) {
            match result {
                Ok(()) => {
                    report.written += 1;
                    self.tracker.done(&key);
                }
                // The link went a moment ago; its event comes, and decides anew.
                Err(e) if e.is_not_found() => {
                    self.read_links.extend(route.oif);
                    let soon = now + LINK_EVENT;
                    report.due = Some(report.due.map_or(soon, |d| d.min(soon)));
                }
                Err(e) => report.failures.push(e),
            }
        }
        Ok(())
    }

    fn delete(
        &mut self,
        net: &mut impl NetKernel,
        now: Instant,
        report: &mut RouteReport,
    ) -> Result<(), NetlinkError> {
        let mut doomed: Vec<(Option<Key>, Route)> = Vec::new();
        for key in self.tracker.deletes() {
            let Some(route) = self.tracker.actual(key) else { continue };
            match self.spared_until(route, now) {
                Some(until) => report.due = Some(report.due.map_or(until, |d| d.min(until))),
                None => doomed.push((Some(*key), route.clone())),
            }
        }
        // A workload that moved must not be reachable at its old place while its connections are forgotten.
        for (key, _) in self.tracker.updates() {
            if self.forget.contains(&key.dst.addr())
                && key.dst.is_host()
                && let Some(route) = self.tracker.actual(key)
            {
                doomed.push((Some(*key), route.clone()));
            }
        }
        doomed.extend(std::mem::take(&mut self.surplus).into_iter().map(|r| (None, r)));
        if doomed.is_empty() {
            return Ok(());
        }
        let changes: Vec<Change> = doomed.iter().map(|(_, r)| Change::DeleteRoute(r.clone())).collect();
        for ((key, route), result) in doomed.into_iter().zip(net.write(&changes)?) {
            match result {
                Err(e) if !e.is_not_found() => {
                    report.failures.push(e);
                    if key.is_none() {
                        self.surplus.push(route);
                    }
                }
                result => {
                    report.written += usize::from(result.is_ok());
                    if let Some(key) = key {
                        self.tracker.saw_absent(&key);
                    }
                }
            }
        }
        Ok(())
    }

    /// Until when a route that nobody wants is left alone.
    fn spared_until(&self, route: &Route, now: Instant) -> Option<Instant> {
        let index = route.oif?;
        let (name, since) = self.seen.get(&index)?;
        if !self.owner.is_workload(name) || self.owner.is_exclusive(route) || self.familiar.contains(&index) {
            return None;
        }
        let until = *since + GRACE;
        (now < until).then_some(until)
    }
}

#[cfg(test)]
mod tests;
