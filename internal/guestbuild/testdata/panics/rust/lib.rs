//! The hook of ../go in Rust. The crate has the name, the version and so on.

use kubewasm::hooks::{Decision, Hook, Request};

kubewasm::config! {
    struct Plugin;
}

#[inline(never)]
fn divided_by(tier: &str) -> i64 {
    assert!(!tier.is_empty(), "the tier is empty");
    100 / tier.len() as i64
}

impl Hook for Plugin {
    fn decide(&self, req: Request<'_>, d: &mut Decision) -> Result<(), String> {
        d.resources.cpu_shares = Some(divided_by(req.pod_labels().get("tier").unwrap_or_default()));
        Ok(())
    }
}

kubewasm::plugin! {
    Plugin: Hook;
    reads = ["pod_labels[tier]", "pod_annotations"];
    decides = ["cpu_shares", "cfs_quota_us"];
}
