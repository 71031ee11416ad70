// The policy required-labels in C: what ../main.go is in Go, held against the same ../cases.yaml.
#include <kubewasm.h>
#include <kubewasm/apps/apps.h>
#include <kubewasm/batch/batch.h>

//kubewasm:name required-labels
//kubewasm:matches CREATE,UPDATE pods pods/ephemeralcontainers pods/status replicationcontrollers podtemplates
//kubewasm:matches CREATE,UPDATE deployments.apps replicasets.apps statefulsets.apps daemonsets.apps jobs.batch cronjobs.batch

static kw_strs labels;     // Keys that every Pod must have.
static kw_strs registries; // Prefixes that images may have: "registry.example.com/".

KW_CONFIG(KW_OPTION_STRINGS("labels", labels), KW_OPTION_STRINGS("registries", registries)) { return KW_SUCCESS; }

// template is a Pod, or the template of one in a workload, and where it is.
typedef struct { meta_ObjectMeta metadata; core_PodSpec spec; kw_str path; bool found; } template;

static template in_template(core_PodTemplateSpec t, kw_str path) {
  return (template){core_PodTemplateSpec_metadata(t), core_PodTemplateSpec_spec(t), path, true};
}

static template template_of(kw_GroupVersionKind gvk, kw_view object) {
  kw_str kind = kw_GroupVersionKind_kind(gvk), group = kw_GroupVersionKind_group(gvk), workload = KW("spec.template.");
  if (!object.bytes.n || !kw_equal(kw_GroupVersionKind_version(gvk), "v1")) return (template){0};
  if (kw_equal(group, "")) {
    core_Pod pod = {object};
    if (kw_equal(kind, "Pod")) return (template){core_Pod_metadata(pod), core_Pod_spec(pod), KW(""), true};
    if (kw_equal(kind, "ReplicationController"))
      return in_template(core_ReplicationControllerSpec_template(core_ReplicationController_spec((core_ReplicationController){object})), workload);
    if (kw_equal(kind, "PodTemplate")) return in_template(core_PodTemplate_template((core_PodTemplate){object}), KW("template."));
  }
  if (kw_equal(group, "apps")) {
    if (kw_equal(kind, "Deployment")) return in_template(apps_DeploymentSpec_template(apps_Deployment_spec((apps_Deployment){object})), workload);
    if (kw_equal(kind, "ReplicaSet")) return in_template(apps_ReplicaSetSpec_template(apps_ReplicaSet_spec((apps_ReplicaSet){object})), workload);
    if (kw_equal(kind, "StatefulSet")) return in_template(apps_StatefulSetSpec_template(apps_StatefulSet_spec((apps_StatefulSet){object})), workload);
    if (kw_equal(kind, "DaemonSet")) return in_template(apps_DaemonSetSpec_template(apps_DaemonSet_spec((apps_DaemonSet){object})), workload);
  }
  if (kw_equal(group, "batch")) {
    if (kw_equal(kind, "Job")) return in_template(batch_JobSpec_template(batch_Job_spec((batch_Job){object})), workload);
    if (kw_equal(kind, "CronJob")) {
      batch_JobTemplateSpec job = batch_CronJobSpec_jobTemplate(batch_CronJob_spec((batch_CronJob){object}));
      return in_template(batch_JobSpec_template(batch_JobTemplateSpec_spec(job)), KW("spec.jobTemplate.spec.template."));
    }
  }
  return (template){0};
}

// list is one of the three lists of containers, whose elements are read as containers.
typedef struct { const char *name; kw_list containers; } list;

static void lists_of(core_PodSpec spec, list lists[3]) {
  lists[0] = (list){"initContainers", core_PodSpec_initContainers(spec)};
  lists[1] = (list){"containers", core_PodSpec_containers(spec)};
  lists[2] = (list){"ephemeralContainers", core_PodSpec_ephemeralContainers(spec)};
}

// container_in returns an element of a list. An ephemeral container has what it shares with the
// others in a message of its own.
static core_Container container_in(int number, kw_view element) {
  if (number < 2) return (core_Container){element};
  return (core_Container){core_EphemeralContainer_ephemeralContainerCommon((core_EphemeralContainer){element}).v};
}

static bool allowed(kw_str image) {
  for (uint32_t i = 0; i < registries.n; i++)
    if (kw_starts(image, registries.of[i])) return true;
  return registries.n == 0;
}

KW_VALIDATE(request) {
  kw_GroupVersionKind kind = kw_Request_kind(request);
  if (kw_equal(kw_Request_operation(request), "DELETE")) return KW_ALLOW; // It has no object.
  template pod = template_of(kind, kw_object_view());
  if (!pod.found) return kw_error("a ", kw_GroupVersionKind_kind(kind), " is no Pod and has no template of one");
  template old = template_of(kind, kw_old_object_view());
  list lists[3];
  kw_view element;
  kw_strs had = {0};
  if (old.found) {
    lists_of(old.spec, lists);
    for (int n = 0; n < 3; n++)
      while (kw_next_message(&lists[n].containers, &element)) kw_strs_add(&kw_call, &had, core_Container_image(container_in(n, element)));
  }
  for (uint32_t i = 0; i < labels.n; i++) {
    kw_str key = labels.of[i];
    if (kw_has(meta_ObjectMeta_labels(pod.metadata), key) || (old.found && !kw_has(meta_ObjectMeta_labels(old.metadata), key))) continue;
    kw_required(kw_text(pod.path, "metadata.labels[", key, "]"), "every Pod must have it");
  }
  lists_of(pod.spec, lists);
  for (int n = 0; n < 3; n++)
    for (uint32_t i = 0; kw_next_message(&lists[n].containers, &element); i++) {
      core_Container container = container_in(n, element);
      kw_str image = core_Container_image(container);
      if (!allowed(image) && !kw_contains(had, image))
        kw_invalid(kw_text(pod.path, "spec.", lists[n].name, "[", i, "].image"), image, "must come from ", kw_join(registries, " or "));
      if (kw_ends(image, ":latest")) kw_warn("container ", core_Container_name(container), ": the tag latest may be another image tomorrow");
    }
  return kw_verdict_of_errors();
}
