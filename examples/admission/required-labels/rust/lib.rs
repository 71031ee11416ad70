//! The required-labels policy in Rust: what ../main.go is in Go, held against the same
//! ../cases.yaml.

use kubewasm::admission::{FieldError, Operation, Request, Response, Validate};

kubewasm::config! {
    struct Policy {
        /// Keys that every Pod must have.
        labels: Vec<String>,
        /// Prefixes that images may have: "registry.example.com/".
        registries: Vec<String>,
    }
}

impl Validate for Policy {
    fn validate(&self, req: &Request<'_>) -> Response {
        if req.operation() == Operation::Delete {
            return Response::allow(); // It has no object.
        }
        let pod = match req.pod() {
            Some(pod) => pod,
            None => return Response::error(format!("a {} is no Pod and has no template of one", req.kind().kind())),
        };
        let old = req.old_pod();
        let had: Vec<&str> = old.iter().flat_map(|old| old.all_containers()).map(|c| c.image()).collect();
        let mut response = Response::allow();
        let (labels, old_labels) = (pod.metadata().labels(), old.map(|old| old.metadata().labels()));
        for key in &self.labels {
            if !labels.contains_key(key) && old_labels.map_or(true, |old| old.contains_key(key)) {
                let path = pod.path().child("metadata").child("labels").key(key);
                response = response.with_field_error(FieldError::required(&path, "every Pod must have it"));
            }
        }
        for c in pod.all_containers() {
            let image = c.image();
            if !self.allows(image) && !had.contains(&image) {
                let detail = format!("must come from {}", self.registries.join(" or "));
                response = response.with_field_error(FieldError::invalid(&c.path().child("image"), image, detail));
            }
            if image.ends_with(":latest") {
                response = response.with_warning(format!("container {}: the tag latest may be another image tomorrow", c.name()));
            }
        }
        response
    }
}

impl Policy {
    fn allows(&self, image: &str) -> bool {
        self.registries.is_empty() || self.registries.iter().any(|prefix| image.starts_with(prefix.as_str()))
    }
}

kubewasm::plugin! {
    Policy: Validate;
    matches = [
        "CREATE,UPDATE pods pods/ephemeralcontainers pods/status replicationcontrollers podtemplates",
        "CREATE,UPDATE deployments.apps replicasets.apps statefulsets.apps daemonsets.apps jobs.batch cronjobs.batch",
    ];
}
