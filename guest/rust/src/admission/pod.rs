use core::ops::Deref;

use super::field::Path;
use super::messages::GroupVersionKind;
use crate::api::{apps, batch, core as v1, meta};
use crate::Call;

/// A Pod, or the Pod template of a workload.
#[derive(Clone, Copy, Debug)]
pub struct PodOf<'a> {
    metadata: meta::ObjectMeta<'a>,
    spec: v1::PodSpec<'a>,
    /// The fields on the way to the Pod.
    path: &'static [&'static str],
}

const TEMPLATE: &[&str] = &["spec", "template"];
const JOB_TEMPLATE: &[&str] = &["spec", "jobTemplate", "spec", "template"];

impl<'a> PodOf<'a> {
    /// Returns the Pod of an object in JSON: of a Pod, Deployment, ReplicaSet, StatefulSet,
    /// DaemonSet, Job, CronJob, ReplicationController or PodTemplate.
    pub fn of(call: impl Into<Call<'a>>, kind: GroupVersionKind<'_>, object: &'a [u8]) -> Option<Self> {
        let call = call.into();
        if object.is_empty() {
            return None;
        }
        let template = |t: v1::PodTemplateSpec<'a>, path| Some(PodOf { metadata: t.metadata(), spec: t.spec(), path });
        match (kind.group(), kind.version(), kind.kind()) {
            ("", "v1", "Pod") => {
                let pod = v1::Pod::from_json(call, object);
                Some(PodOf { metadata: pod.metadata(), spec: pod.spec(), path: &[] })
            }
            ("apps", "v1", "Deployment") => template(apps::Deployment::from_json(call, object).spec().template(), TEMPLATE),
            ("apps", "v1", "ReplicaSet") => template(apps::ReplicaSet::from_json(call, object).spec().template(), TEMPLATE),
            ("apps", "v1", "StatefulSet") => template(apps::StatefulSet::from_json(call, object).spec().template(), TEMPLATE),
            ("apps", "v1", "DaemonSet") => template(apps::DaemonSet::from_json(call, object).spec().template(), TEMPLATE),
            ("batch", "v1", "Job") => template(batch::Job::from_json(call, object).spec().template(), TEMPLATE),
            ("batch", "v1", "CronJob") => template(batch::CronJob::from_json(call, object).spec().job_template().spec().template(), JOB_TEMPLATE),
            ("", "v1", "ReplicationController") => {
                template(v1::ReplicationController::from_json(call, object).spec().template().unwrap_or_default(), TEMPLATE)
            }
            ("", "v1", "PodTemplate") => template(v1::PodTemplate::from_json(call, object).template(), &["template"]),
            _ => None,
        }
    }

    /// Returns the metadata of the Pod, for a workload those of its template.
    pub fn metadata(self) -> meta::ObjectMeta<'a> {
        self.metadata
    }

    /// Returns the spec of the Pod.
    pub fn spec(self) -> v1::PodSpec<'a> {
        self.spec
    }

    /// Returns the path of the Pod in the object.
    pub fn path(self) -> Path {
        self.path.iter().fold(Path::default(), |path, name| path.child(name))
    }

    /// Returns every container of the Pod: init containers, containers and ephemeral containers,
    /// in this order.
    pub fn all_containers(self) -> impl Iterator<Item = Container<'a>> + 'a {
        let of = move |list| move |(index, container)| Container { container, list, index, pod: self.path };
        let ephemeral = self.spec.ephemeral_containers().iter().map(|c| c.container());
        (self.spec.init_containers().iter().enumerate().map(of("initContainers")))
            .chain(self.spec.containers().iter().enumerate().map(of("containers")))
            .chain(ephemeral.enumerate().map(of("ephemeralContainers")))
    }
}

/// A container of a Pod, which has the accessors of [`v1::Container`]. An ephemeral container has
/// all fields of the others.
#[derive(Clone, Copy, Debug)]
pub struct Container<'a> {
    container: v1::Container<'a>,
    list: &'static str,
    index: usize,
    pod: &'static [&'static str],
}

impl<'a> Container<'a> {
    /// Returns the field of the Pod's spec that has the container: "initContainers".
    pub fn list(self) -> &'static str {
        self.list
    }

    /// Returns the path of the container in the object: `spec.containers[0]`.
    pub fn path(self) -> Path {
        let pod = self.pod.iter().fold(Path::default(), |path, name| path.child(name));
        pod.child("spec").child(self.list).index(self.index)
    }
}

impl<'a> Deref for Container<'a> {
    type Target = v1::Container<'a>;
    fn deref(&self) -> &v1::Container<'a> {
        &self.container
    }
}
