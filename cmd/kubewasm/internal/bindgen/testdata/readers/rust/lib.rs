//! The guest writes what it reads of a CronTab, and of a StellarNode: see readers_test.go.

#[allow(dead_code)]
mod crontab;
#[allow(dead_code)]
mod stellarnode;

use std::fmt::{Display, Write};

use crontab::{CronTab, CRON_TAB_SPEC_POLICY_FORBID};
use kubewasm::admission::{Request, Response, Validate};
use stellarnode::{StellarNode, STELLAR_NODE_SPEC_NODE_TYPE_VALIDATOR, STELLAR_NODE_SPEC_STORAGE_RETENTION_POLICY_DELETE};

kubewasm::config! {
    struct Reader;
}

struct Text(String);

impl Text {
    fn line(&mut self, name: &str, value: impl Display) {
        let _ = writeln!(self.0, "{}={}", name, value);
    }

    fn option<T: Display>(&mut self, name: &str, value: Option<T>) {
        match value {
            Some(v) => self.line(name, v),
            None => self.line(name, "-"),
        }
    }
}

fn utf8(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or("not UTF-8")
}

fn read_node(node: StellarNode<'_>) -> String {
    let s = node.spec();
    let (storage, status) = (s.storage().unwrap_or_default(), node.status().unwrap_or_default());
    let validator = s.validator_config();
    let mut t = Text(String::new());
    t.line("name", node.metadata().name());
    if s.node_type() == STELLAR_NODE_SPEC_NODE_TYPE_VALIDATOR {
        t.line("validates", "yes");
    }
    t.line("network", s.network());
    t.line("version", s.version());
    t.option("image", s.image());
    t.option("replicas", s.replicas());
    t.option("suspended", s.suspended().map(|b| b as i32));
    t.option("cpu", s.resources().and_then(|r| r.requests().get("cpu")));
    t.line("size", storage.size().unwrap_or_default());
    if storage.retention_policy() == Some(STELLAR_NODE_SPEC_STORAGE_RETENTION_POLICY_DELETE) {
        t.line("deletes", "yes");
    }
    t.line("seed", validator.and_then(|v| v.seed_secret_ref()).unwrap_or_default());
    t.option("archives", validator.and_then(|v| v.enable_history_archive()).map(|b| b as i32));
    for url in validator.unwrap_or_default().history_archive_urls() {
        t.line("url", url);
    }
    t.option("workers", s.horizon_config().and_then(|h| h.ingest_workers()));
    t.option("events", s.soroban_config().and_then(|s| s.max_events_per_request()));
    t.line("phase", status.phase().unwrap_or_default());
    t.option("ready", status.ready_replicas());
    t.0
}

impl Validate for Reader {
    fn validate(&self, req: &Request<'_>) -> Response {
        let tab = CronTab::from_json(req, req.object());
        if tab.kind() == "StellarNode" {
            return Response::deny(read_node(StellarNode::from_json(req, req.object())));
        }
        let s = tab.spec();
        let mut t = Text(String::new());
        t.line("name", tab.metadata().name());
        t.line("app", tab.metadata().labels().get("app").unwrap_or_default());
        t.line("schedule", s.schedule());
        t.line("replicas", s.replicas());
        t.option("deadline", s.deadline());
        t.option("threshold", s.threshold().map(|x| (x * 1000.0) as i64));
        t.option("suspend", s.suspend().map(|b| b as i32));
        t.option("policy", s.policy());
        if s.policy() == Some(CRON_TAB_SPEC_POLICY_FORBID) {
            t.line("forbid", "yes");
        }
        t.option("since", s.since().map(|time| time.unix()));
        t.option("nanos", s.since().map(|time| time.nanosecond()));
        t.line("secret", utf8(s.secret().unwrap_or_default()));
        t.option("port", s.port());
        t.option("memory", s.memory().map(|m| m.milli_value()));
        for arg in s.args() {
            t.line("arg", arg);
        }
        for code in s.codes() {
            t.line("code", code);
        }
        for row in s.matrix() {
            t.line("row", utf8(row));
        }
        for key in ["a", "é\"", "none"] {
            t.line("label", s.labels().get(key).unwrap_or_default());
            t.option("limit", s.limits().get(key));
            t.option("queue", s.queues().get(key).and_then(|queue| queue.length()));
        }
        for c in s.containers() {
            t.line("image", c.image());
            for e in c.env() {
                t.line("env", e.name().unwrap_or_default());
                t.option("value", e.value());
            }
        }
        t.line("template", utf8(s.template().unwrap_or_default()));
        t.line("anything", utf8(s.anything().unwrap_or_default()));
        t.option("active", tab.status().and_then(|status| status.active()));
        Response::deny(t.0)
    }
}

kubewasm::plugin! {
    Reader: Validate;
}
