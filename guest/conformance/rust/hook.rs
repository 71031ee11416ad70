//! The hook guest of the conformance suite, by the SDK.

use kubewasm::hooks::{Decision, Hook, Request, UNLIMITED};

kubewasm::config! {
    struct Guest;
}

impl Hook for Guest {
    fn decide(&self, req: Request<'_>, d: &mut Decision) -> Result<(), String> {
        let mut tier = req.pod_labels().get("tier");
        if tier == Some("node") {
            tier = req.node_annotations().get("tier");
        }
        match tier {
            Some("batch") => d.resources.cpu_shares = Some(128),
            Some("idle") => {
                d.resources.cpu_shares = Some(2);
                d.resources.cfs_quota_us = Some(UNLIMITED);
            }
            Some("wrong") => return Err("tier is wrong".into()),
            _ => {}
        }
        Ok(())
    }
}

kubewasm::plugin! {
    Guest: Hook;
    name = "conformance-hook";
}
