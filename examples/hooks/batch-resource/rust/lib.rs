//! The batch-resource hook in Rust: what ../main.go is in Go, held against the same
//! ../cases.yaml.

use std::collections::BTreeMap;

use kubewasm::hooks::{Decision, Hook, Level, Request, UNLIMITED};
use kubewasm::json::{self, Value};
use kubewasm::log;
use kubewasm::value::Quantity;

const QOS_LABEL: &str = "koordinator.sh/qosClass";
const SPEC_ANNOTATION: &str = "node.koordinator.sh/extended-resource-spec";
const BATCH_CPU: &str = "kubernetes.io/batch-cpu";
const BATCH_MEMORY: &str = "kubernetes.io/batch-memory";

/// Microseconds, the kernel's default.
const PERIOD: i64 = 100_000;
const MIN_QUOTA: i64 = 1000;
const MIN_SHARES: i64 = 2;
const MAX_SHARES: i64 = 262_144;

kubewasm::config! {
    struct Batch {
        /// Switches quotas off.
        cfs_quota: bool as "cfsQuota" = true,
        /// Divides quotas, in hundredths; 100 or less does not.
        ratio_percent: i64,
    }
}

/// An amount; 0 is none.
fn amount(container: Value<'_>, list: &str, name: &str) -> Result<i64, String> {
    let value = match container.get(list).and_then(|amounts| amounts.get(name)) {
        Some(value) => value,
        None => return Ok(0),
    };
    let raw = String::from_utf8_lossy(value.raw());
    let quantity: Quantity = raw.trim_matches('"').parse().map_err(|e| format!("{name} is {raw}: {e}"))?;
    Ok(quantity.value().max(0))
}

/// The sums of requests and limits of CPU and of limits of memory, None without a limit.
fn sums<'a>(containers: impl Iterator<Item = (&'a str, Value<'a>)>) -> Result<[(i64, bool); 3], String> {
    let mut sums = [(0i64, false); 3];
    for (name, container) in containers {
        for (sum, (list, resource)) in sums.iter_mut().zip([("requests", BATCH_CPU), ("limits", BATCH_CPU), ("limits", BATCH_MEMORY)]) {
            let n = amount(container, list, resource).map_err(|e| format!("container {name:?}: {e}"))?;
            sum.0 = sum.0.checked_add(n).filter(|n| *n <= i64::MAX / PERIOD).ok_or_else(|| format!("container {name:?}: more than there can be"))?;
            sum.1 |= n == 0;
        }
    }
    Ok(sums)
}

/// Logs an annotation that cannot be read: the pod keeps the resources of the kubelet.
fn unread(req: Request<'_>, e: &str) -> Result<(), String> {
    let pod = req.pod().unwrap_or_default().name();
    log::warn("a pod keeps the resources of the kubelet: its annotation cannot be read", &[("pod", &pod), ("annotation", &SPEC_ANNOTATION), ("err", &e)]);
    Ok(())
}

impl Hook for Batch {
    fn decide(&self, req: Request<'_>, d: &mut Decision) -> Result<(), String> {
        if req.level() == Level::QOS || req.pod_labels().get(QOS_LABEL) != Some("BE") {
            return Ok(());
        }
        let text = match req.pod_annotations().get(SPEC_ANNOTATION) {
            Some(text) => text,
            None => return Ok(()),
        };
        if !json::is_valid(text.as_bytes()) {
            return unread(req, "not valid JSON");
        }
        let containers = Value::of(req, text.as_bytes()).get("containers");
        let mut all: BTreeMap<&str, Value<'_>> = containers.iter().flat_map(|v| v.members()).collect();
        if req.level() == Level::CONTAINER {
            let name = req.container().unwrap_or_default().name();
            all.retain(|key, _| *key == name);
        }
        if all.is_empty() {
            return Ok(());
        }
        let [requests, limits, memory] = match sums(all.into_iter()) {
            Ok(sums) => sums,
            Err(e) => return unread(req, &e),
        };
        d.resources.cpu_shares = Some((requests.0 * 1024 / 1000).clamp(MIN_SHARES, MAX_SHARES));
        let mut quota = UNLIMITED;
        if !limits.1 && self.cfs_quota {
            d.resources.cfs_period_us = Some(PERIOD); // The kubelet's may be another.
            quota = (limits.0 * PERIOD / 1000).max(MIN_QUOTA);
            if self.ratio_percent > 100 {
                quota = ((quota * 100 + self.ratio_percent - 1) / self.ratio_percent).max(MIN_QUOTA);
            }
        }
        d.resources.cfs_quota_us = Some(quota);
        d.resources.memory_limit_bytes = Some(if memory.1 { UNLIMITED } else { memory.0 });
        Ok(())
    }
}

kubewasm::plugin! {
    Batch: Hook;
}
