//! The hook guest of the conformance suite, by the SDK.

use kubewasm::api::core::Node;
use kubewasm::hooks::{self, Decision, Hook, Request, UNLIMITED};

kubewasm::config! {
    struct Guest;
}

impl Hook for Guest {
    fn decide(&self, req: Request<'_>, d: &mut Decision) -> Result<(), String> {
        let mut tier = req.pod_labels().get("tier");
        if tier == Some("node") {
            tier = req.node_annotations().get("tier");
        }
        if tier == Some("object") {
            tier = hooks::get(req, "v1/nodes", req.node_name()).and_then(|node| Node::from_json(req, node).metadata().labels().get("tier"));
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
