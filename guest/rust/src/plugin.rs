//! What makes a crate a module: [`plugin!`](crate::plugin!) registers a plugin with the
//! extension points that it implements.

use alloc::boxed::Box;
use alloc::string::String;

use crate::config::{self, Decode};
use crate::global::Global;
use crate::{host, object};

/// Checks the configuration, or prepares from it. It is an extension point of every kind.
pub trait Configure {
    /// Is called after the configuration was read, before any other function. An error makes the
    /// plugin fail to load, with its text.
    fn configure(&mut self) -> Result<(), String>;
}

/// The registered plugin.
static PLUGIN: Global<*const ()> = Global::new(core::ptr::null());

/// Returns the registered plugin.
///
/// # Safety
///
/// P must be its type.
pub(crate) unsafe fn get<'a, P: 'a>() -> &'a P {
    let plugin = *PLUGIN.get() as *const P;
    assert!(!plugin.is_null(), "the host has not configured the plugin");
    &*plugin
}

/// Begins an instance.
#[doc(hidden)]
pub fn start() {
    #[cfg(target_arch = "wasm32")]
    crate::panic::install();
}

/// Reads the configuration into the plugin.
///
/// # Safety
///
/// It begins a call, which ends what the call before has read. P must be the type by which the
/// others get the plugin.
#[doc(hidden)]
pub unsafe fn configure<P: Decode>(check: impl FnOnce(&mut P) -> Result<(), String>) -> i32 {
    let call = object::begin();
    let read = config::read::<P>(host::ask(call, host::config)).and_then(|mut p| check(&mut p).map(|()| p));
    match read {
        Ok(p) => {
            *PLUGIN.get() = Box::into_raw(Box::new(p)) as *const ();
            0
        }
        Err(text) => {
            host::reason(&text);
            1
        }
    }
}

/// Text that a constant is made of: with N = 0 it counts.
#[derive(Clone, Copy)]
struct Text<const N: usize> {
    bytes: [u8; N],
    n: usize,
}

impl<const N: usize> Text<N> {
    const fn push(mut self, b: u8) -> Self {
        if self.n < N {
            self.bytes[self.n] = b;
        }
        self.n += 1;
        self
    }

    const fn add(mut self, text: &str) -> Self {
        let b = text.as_bytes();
        let mut i = 0;
        while i < b.len() {
            self = self.push(b[i]);
            i += 1;
        }
        self
    }

    const fn string(mut self, text: &str) -> Self {
        self = self.push(b'"').part(text, 0, text.len());
        self.push(b'"')
    }

    /// Adds a part of a text that needs no escape in JSON.
    const fn part(mut self, text: &str, from: usize, to: usize) -> Self {
        let b = text.as_bytes();
        let mut i = from;
        while i < to {
            if b[i] == b'"' || b[i] == b'\\' || b[i] < b' ' {
                panic!("metadata have no quotes, backslashes and control characters");
            }
            self = self.push(b[i]);
            i += 1;
        }
        self
    }

    /// Adds a member whose value is an array of strings, if there are any.
    const fn list(mut self, name: &str, items: &[&str]) -> Self {
        if items.is_empty() {
            return self;
        }
        self = self.push(b',').string(name).add(":[");
        let mut i = 0;
        while i < items.len() {
            if i > 0 {
                self = self.push(b',');
            }
            self = self.string(items[i]);
            i += 1;
        }
        self.push(b']')
    }

    /// Adds a member unless its text is empty.
    const fn member(self, name: &str, text: &str) -> Self {
        if text.is_empty() {
            return self;
        }
        self.push(b',').string(name).push(b':').string(text)
    }

    /// Adds a member `matches`: of "CREATE,UPDATE pods/status deployments.v1.apps" a rule for
    /// each resource. Without a version it is for all.
    const fn matches(mut self, rules: &[&str]) -> Self {
        if rules.is_empty() {
            return self;
        }
        self = self.add(",\"matches\":[");
        let (mut i, mut first) = (0, true);
        while i < rules.len() {
            let b = rules[i].as_bytes();
            let operations = until(b, 0, b' ');
            let mut at = operations;
            if at == b.len() {
                panic!("want operations and resources: CREATE,UPDATE pods");
            }
            while at < b.len() {
                let from = at + 1;
                at = until(b, from, b' ');
                let slash = until_or(b, from, at, b'/');
                let resource = until_or(b, from, slash, b'.');
                let mut group = if resource < slash { resource + 1 } else { slash };
                let version = group;
                let end = until_or(b, group, slash, b'.');
                if is_version(b, group, end) {
                    group = if end < slash { end + 1 } else { slash };
                }
                if !first {
                    self = self.push(b',');
                }
                first = false;
                self = self.add("{\"operations\":[");
                let mut op = 0;
                while op < operations {
                    let end = until_or(b, op, operations, b',');
                    if op > 0 {
                        self = self.push(b',');
                    }
                    self = self.push(b'"').part(rules[i], op, end).push(b'"');
                    op = end + 1;
                }
                self = self.add("],\"apiGroups\":[\"").part(rules[i], group, slash).add("\"],\"apiVersions\":[\"");
                self = if group > version { self.part(rules[i], version, end) } else { self.push(b'*') };
                self = self.add("\"],\"resources\":[\"").part(rules[i], from, resource).part(rules[i], slash, at).add("\"]}");
            }
            i += 1;
        }
        self.push(b']')
    }
}

const fn until(b: &[u8], from: usize, c: u8) -> usize {
    until_or(b, from, b.len(), c)
}

const fn until_or(b: &[u8], from: usize, end: usize, c: u8) -> usize {
    let mut i = from;
    while i < end && b[i] != c {
        i += 1;
    }
    i
}

/// Reports whether a part of a text is a version of Kubernetes: v1, v1beta2.
const fn is_version(b: &[u8], from: usize, end: usize) -> bool {
    if from >= end || b[from] != b'v' {
        return false;
    }
    let number = digits(b, from + 1, end);
    if number == from + 1 || number == end {
        return number > from + 1;
    }
    let mut i = 0;
    while i < 2 {
        let stage: &[u8] = if i == 0 { b"alpha" } else { b"beta" };
        let mut n = 0;
        while n < stage.len() && number + n < end && b[number + n] == stage[n] {
            n += 1;
        }
        if n == stage.len() {
            let from = number + n;
            return from < end && digits(b, from, end) == end;
        }
        i += 1;
    }
    false
}

/// Returns the end of the digits that begin at `i`.
const fn digits(b: &[u8], mut i: usize, end: usize) -> usize {
    while i < end && b[i] >= b'0' && b[i] <= b'9' {
        i += 1;
    }
    i
}

/// What a module says of itself: abi/SPEC.md, section 7.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct Metadata {
    pub name: &'static str,
    pub version: &'static str,
    pub source: &'static str,
    pub licenses: &'static str,
    pub reads: &'static [&'static str],
    pub decides: &'static [&'static str],
    pub matches: &'static [&'static str],
    pub mask: u64,
}

impl Metadata {
    const fn text<const N: usize>(self) -> Text<N> {
        let mut t = Text { bytes: [0; N], n: 0 };
        t = t.add("{\"abi\":1").member("name", self.name).member("version", self.version);
        t = t.member("source", self.source).member("licenses", self.licenses).add(",\"kinds\":[");
        let kinds = [("scheduler", 0, 32), ("admission", 32, 48), ("hook", 48, 56), ("service", 60, 63)];
        let (mut i, mut first) = (0, true);
        while i < kinds.len() {
            let (kind, from, to) = kinds[i];
            if self.mask >> from & ((1 << (to - from)) - 1) != 0 {
                if !first {
                    t = t.push(b',');
                }
                first = false;
                t = t.string(kind);
            }
            i += 1;
        }
        t = t.push(b']').list("reads", self.reads).list("decides", self.decides).matches(self.matches);
        t.add(",\"sdk\":\"github.com/kubewasm/kubewasm/guest/rust ").add(env!("CARGO_PKG_VERSION")).add("\"}")
    }

    pub const fn len(self) -> usize {
        self.text::<0>().n
    }

    pub const fn bytes<const N: usize>(self) -> [u8; N] {
        self.text::<N>().bytes
    }
}

/// Registers the plugin of a module: its type, and the extension points whose traits it
/// implements. The module has the functions of these alone.
///
/// The type is read from the configuration: see [`config!`](crate::config!). Scheduler plugins
/// have the points of [`sched`](crate::sched), policies those of
/// [`admission`](crate::admission), hooks `Hook` of [`hooks`](crate::hooks). `Configure` is
/// [`Configure`], and `Service(path)` is an extension point of a .proto file, by the module
/// that `kubewasm gen --lang rust` wrote.
///
/// The name, the version, the repository and the license of the crate are those in the module's
/// metadata. After the points, `name`, `version`, `source`, `licenses`, `reads`, `decides` and
/// `matches` say something else or more.
///
/// ```
/// use kubewasm::api::core::Pod;
/// use kubewasm::sched::{Filter, NodeInfo, Result, Scheduler, Status};
///
/// kubewasm::config! {
///     pub struct Zone {
///         zone: String,
///     }
/// }
///
/// impl Scheduler for Zone {
///     type State = ();
/// }
///
/// impl Filter for Zone {
///     fn filter(&self, _: &mut (), _: Pod<'_>, node: NodeInfo<'_>) -> Result {
///         match node.node().metadata().labels().get("topology.kubernetes.io/zone") {
///             Some(zone) if zone == self.zone => Ok(()),
///             zone => Err(Status::unschedulable(format!("node is in zone {}, not in {}", zone.unwrap_or(""), self.zone))),
///         }
///     }
/// }
///
/// kubewasm::plugin! {
///     Zone: Filter;
///     reads = ["node.metadata.labels[topology.kubernetes.io/zone]"];
/// }
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! plugin {
    ($plugin:ty : $($point:ident $(($($arg:ident)::+))?),+ $(,)? $(; $($key:ident = $value:expr);* $(;)?)?) => {
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            const MASK: u64 = 1 << 56 $(| $crate::__bits!($point))+;

            #[allow(clippy::needless_update)]
            const METADATA: $crate::plugin::Metadata = $crate::__metadata!(MASK; $($($key = $value),*)?);

            #[used]
            #[link_section = "kubewasm"]
            static SECTION: [u8; METADATA.len()] = METADATA.bytes();

            #[no_mangle]
            pub extern "C" fn kubewasm_abi_v1() -> u64 {
                $crate::plugin::start();
                MASK
            }

            #[no_mangle]
            pub extern "C" fn configure() -> i32 {
                #[allow(unused_variables, unused_mut)]
                unsafe {
                    $crate::plugin::configure::<$plugin>(|mut p| {
                        $($crate::__configure!(p, $point);)+
                        Ok(())
                    })
                }
            }

            $crate::__services!($($point $(($($arg)::+))?),+);
            $($crate::__export!($plugin, $point $(, $($arg)::+)?);)+
        };

        #[cfg(not(target_arch = "wasm32"))]
        const _: () = {
            // A plugin that lacks a trait fails to compile on every machine.
            $($crate::__check!($plugin, $point);)+
        };
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __metadata {
    ($mask:expr; $($key:ident = $value:expr),*) => {
        $crate::plugin::Metadata {
            $($key: $crate::__value!($key, $value),)*
            ..$crate::plugin::Metadata {
                name: env!("CARGO_PKG_NAME"),
                version: env!("CARGO_PKG_VERSION"),
                source: env!("CARGO_PKG_REPOSITORY"),
                licenses: env!("CARGO_PKG_LICENSE"),
                reads: &[],
                decides: &[],
                matches: &[],
                mask: $mask,
            }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __value {
    (name, $value:expr) => { $value };
    (version, $value:expr) => { $value };
    (source, $value:expr) => { $value };
    (licenses, $value:expr) => { $value };
    ($list:ident, $value:expr) => { &$value };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __configure {
    ($p:ident, Configure) => {
        $crate::plugin::Configure::configure($p)?
    };
    ($p:ident, $point:ident) => {};
}

#[doc(hidden)]
#[macro_export]
macro_rules! __services {
    (@names $names:ident;) => {};
    (@names $names:ident; Service($($path:ident)::+) $($rest:tt)*) => {
        $names.push_str($($path)::+::NAMES);
        $crate::__services!(@names $names; $($rest)*);
    };
    (@names $names:ident; $token:tt $($rest:tt)*) => {
        $crate::__services!(@names $names; $($rest)*);
    };
    (@find [$($all:tt)*]) => {};
    (@find [$($all:tt)*] Service $($rest:tt)*) => {
        #[no_mangle]
        pub extern "C" fn services() {
            #[allow(unused_mut)]
            let mut names = $crate::alloc::string::String::new();
            $crate::__services!(@names names; $($all)*);
            $crate::service::serve(&names);
        }
    };
    (@find [$($all:tt)*] $token:tt $($rest:tt)*) => {
        $crate::__services!(@find [$($all)*] $($rest)*);
    };
    ($($all:tt)*) => {
        $crate::__services!(@find [$($all)*] $($all)*);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __bits {
    (Configure) => { 0 };
    (PreEnqueue) => { 1 << 0 };
    (QueueSort) => { 1 << 1 };
    (Enqueue) => { 1 << 2 | 1 << 3 | 1 << 25 };
    (PreFilter) => { 1 << 4 };
    (PreFilterExtensions) => { 1 << 5 | 1 << 6 };
    (Filter) => { 1 << 7 };
    (PostFilter) => { 1 << 8 };
    (PreScore) => { 1 << 9 };
    (Score) => { 1 << 10 };
    (NormalizeScore) => { 1 << 11 };
    (Reserve) => { 1 << 12 | 1 << 13 };
    (Permit) => { 1 << 14 };
    (PreBind) => { 1 << 15 | 1 << 16 };
    (Bind) => { 1 << 17 };
    (PostBind) => { 1 << 18 };
    (Sign) => { 1 << 19 };
    (PodGroupPostFilter) => { 1 << 20 };
    (GeneratePlacements) => { 1 << 21 };
    (ScorePlacement) => { 1 << 22 };
    (NormalizePlacementScore) => { 1 << 23 };
    (CloneCycle) => { 1 << 24 };
    (PotentialVictims) => { 1 << 26 };
    (Validate) => { 1 << 32 };
    (Mutate) => { 1 << 33 };
    (Convert) => { 1 << 34 };
    (Hook) => { 1 << 48 };
    (Service) => { 1 << 60 };
}

/// Declares the exports of the points, and for machines without WebAssembly the check that the
/// plugin implements them.
macro_rules! points {
    ($dollar:tt; $($point:ident: $($trait:ident)::+ => $($export:ident($($arg:ident: $type:ty),*) $(-> $result:ty)? = $($function:ident)::+),+;)*) => {
        #[doc(hidden)]
        #[macro_export]
        macro_rules! __export {
            ($plugin:ty, Configure) => {};
            $(
                ($dollar plugin:ty, $point) => {
                    $(
                        #[no_mangle]
                        pub extern "C" fn $export($($arg: $type),*) $(-> $result)? {
                            unsafe { $dollar crate::$($function)::+::<$dollar plugin>($($arg),*) }
                        }
                    )+
                };
            )*
            ($dollar plugin:ty, Service, $dollar($dollar path:ident)::+) => {
                $dollar($dollar path)::+::exports!($dollar plugin, $dollar($dollar path)::+);
            };
        }

        #[doc(hidden)]
        #[macro_export]
        macro_rules! __check {
            $(
                ($dollar plugin:ty, $point) => {
                    const _: fn() = || {
                        fn implements<P: $dollar crate::$($trait)::+>() {}
                        implements::<$dollar plugin>();
                    };
                };
            )*
            ($dollar plugin:ty, Configure) => {
                const _: fn() = || {
                    fn implements<P: $dollar crate::plugin::Configure>() {}
                    implements::<$dollar plugin>();
                };
            };
            ($dollar plugin:ty, Service) => {};
        }
    };
}

points! { $;
    PreEnqueue: sched::PreEnqueue => preenqueue(pod: u64) -> i32 = sched::export::pre_enqueue;
    QueueSort: sched::QueueSort => queuesort(
        first: u64, second: u64, first_time: i64, second_time: i64, first_attempt: i64, second_attempt: i64, first_attempts: i64, second_attempts: i64
    ) -> i32 = sched::export::queue_sort;
    Enqueue: sched::Enqueue =>
        eventstoregister() -> i32 = sched::export::events_to_register,
        queueinghint(event: i32, pod: u64, old: u64, new: u64) -> u64 = sched::export::queueing_hint,
        prequeueinghint(event: i32, old: u64, new: u64) -> i32 = sched::export::pre_queueing_hint;
    PreFilter: sched::PreFilter => prefilter(cycle: u64, pod: u64) -> i32 = sched::export::pre_filter;
    PreFilterExtensions: sched::PreFilterExtensions =>
        addpod(cycle: u64, pod: u64, added: u64, node: u64) -> i32 = sched::export::add_pod,
        removepod(cycle: u64, pod: u64, removed: u64, node: u64) -> i32 = sched::export::remove_pod;
    Filter: sched::Filter => filter(cycle: u64, pod: u64, node: u64) -> i32 = sched::export::filter;
    PostFilter: sched::PostFilter => postfilter(cycle: u64, pod: u64) -> u64 = sched::export::post_filter;
    PotentialVictims: sched::PotentialVictims => potentialvictims(cycle: u64, pod: u64, node: u64) -> i32 = sched::export::potential_victims;
    PreScore: sched::PreScore => prescore(cycle: u64, pod: u64) -> i32 = sched::export::pre_score;
    Score: sched::Score => score(cycle: u64, pod: u64, node: u64) -> u64 = sched::export::score;
    NormalizeScore: sched::NormalizeScore => normalizescore(cycle: u64, pod: u64) -> i32 = sched::export::normalize_score;
    Reserve: sched::Reserve =>
        reserve(cycle: u64, pod: u64) -> i32 = sched::export::reserve,
        unreserve(cycle: u64, pod: u64) = sched::export::unreserve;
    Permit: sched::Permit => permit(cycle: u64, pod: u64) -> u64 = sched::export::permit;
    PreBind: sched::PreBind =>
        prebindpreflight(cycle: u64, pod: u64) -> u64 = sched::export::pre_bind_pre_flight,
        prebind(cycle: u64, pod: u64) -> i32 = sched::export::pre_bind;
    Bind: sched::Bind => bind(cycle: u64, pod: u64) -> i32 = sched::export::bind;
    PostBind: sched::PostBind => postbind(cycle: u64, pod: u64) = sched::export::post_bind;
    Sign: sched::Sign => signpod(pod: u64) -> i32 = sched::export::sign_pod;
    PodGroupPostFilter: sched::PodGroupPostFilter => podgrouppostfilter(cycle: u64) -> i32 = sched::export::pod_group_post_filter;
    GeneratePlacements: sched::GeneratePlacements => generateplacements(cycle: u64) -> i32 = sched::export::generate_placements;
    ScorePlacement: sched::ScorePlacement => scoreplacement(cycle: u64) -> u64 = sched::export::score_placement;
    NormalizePlacementScore: sched::NormalizePlacementScore => normalizeplacementscore(cycle: u64) -> i32 = sched::export::normalize_placement_score;
    CloneCycle: sched::CloneCycle => clonecycle(cycle: u64, from: u64) -> i32 = sched::export::clone_cycle;
    Validate: admission::Validate => validate() -> u64 = admission::export::validate;
    Mutate: admission::Mutate => mutate() -> u64 = admission::export::mutate;
    Convert: admission::Convert => convert() -> u64 = admission::export::convert;
    Hook: hooks::Hook => hook() -> i32 = hooks::export::hook;
}

#[cfg(test)]
mod tests {
    use super::Metadata;
    use alloc::format;

    #[test]
    fn matches_are_rules() {
        const DECLARED: Metadata = Metadata {
            name: "a",
            version: "",
            source: "https://example.com",
            licenses: "",
            reads: &[],
            decides: &[],
            matches: &["CREATE,UPDATE pods pods/ephemeralcontainers deployments.v1.apps", "* tabs.v2beta1.stable.example.com/status v1.volumes"],
            mask: 1 << 32,
        };
        const TEXT: [u8; DECLARED.len()] = DECLARED.bytes();
        let rule = |operations, group, version, resource| {
            format!("{{\"operations\":[{operations}],\"apiGroups\":[\"{group}\"],\"apiVersions\":[\"{version}\"],\"resources\":[\"{resource}\"]}}")
        };
        let rules = [
            rule("\"CREATE\",\"UPDATE\"", "", "*", "pods"),
            rule("\"CREATE\",\"UPDATE\"", "", "*", "pods/ephemeralcontainers"),
            rule("\"CREATE\",\"UPDATE\"", "apps", "v1", "deployments"),
            rule("\"*\"", "stable.example.com", "v2beta1", "tabs/status"),
            rule("\"*\"", "volumes", "*", "v1"),
        ];
        let want = format!(
            "{{\"abi\":1,\"name\":\"a\",\"source\":\"https://example.com\",\"kinds\":[\"admission\"],\"matches\":[{}],\"sdk\":",
            rules.join(",")
        );
        assert_eq!(std::str::from_utf8(&TEXT).unwrap().get(..want.len()), Some(want.as_str()));
    }
}
