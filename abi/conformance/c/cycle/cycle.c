// The cycle guest, which doc.go two directories above describes.
#include <kubewasm.h>

// memory is what is remembered of a cycle.
typedef struct { int64_t total; uint32_t nodes; kw_str first, reserved; } memory;

static memory *of(kw_cycle cycle) {
  memory *m = kw_cycle_state(cycle);
  KW_ASSERT(m);
  return m;
}

static kw_map labels(core_Pod pod) { return meta_ObjectMeta_labels(core_Pod_metadata(pod)); }
static bool same_app(core_Pod a, core_Pod b) { return kw_equal(kw_value(labels(a), "app"), kw_value(labels(b), "app")); }

// here counts the Pods of the Pod's app on a node.
static int64_t here(core_Node node, core_Pod pod) {
  kw_refs pods = kw_node_pods(node);
  int64_t n = 0;
  for (uint32_t i = 0; i < pods.n; i++) n += same_app(pod, kw_pod(pods.of[i]));
  return n;
}

// chosen counts the Pods of the Pod's app, in its namespace, on a node, but for those that are parked
// or of two tiers.
static uint32_t chosen(core_Node node, core_Pod pod, bool terminating) {
  uint64_t ref = kw_ref(node);
  kw_refs nodes = {&ref, 1};
  kw_str app = kw_value(labels(pod), "app"), selector;
  kw_str json = kw_text(
      "{\"matchLabels\": {\"app\": \"", app, "\"}, \"matchExpressions\": [",
      "{\"key\": \"app\", \"operator\": \"Exists\"}, {\"key\": \"parked\", \"operator\": \"DoesNotExist\"}, ",
      "{\"key\": \"tier\", \"operator\": \"NotIn\", \"values\": [\"out\", \"old\"]}, ",
      "{\"key\": \"app\", \"operator\": \"In\", \"values\": [\"any\", \"", app, "\"]}]}");
  KW_ASSERT(kw_selector_text(meta_LabelSelector_of_json(json), &selector));
  kw_counts counts = kw_count_pods(nodes, meta_ObjectMeta_namespace(core_Pod_metadata(pod)), selector, terminating);
  KW_ASSERT(counts.n == 1);
  return counts.of[0];
}

KW_PREFILTER(cycle, pod) {
  memory *m = kw_cycle_begin(cycle, sizeof *m);
  kw_refs nodes = kw_node_refs();
  for (uint32_t i = 0; i < nodes.n; i++) m->total += here(kw_node(nodes.of[i]), pod);
  m->reserved = KW("nothing");
  return KW_SUCCESS;
}

KW_CLONECYCLE(cycle, from) {
  kw_clone_state(cycle, from);
  memory *m = of(cycle), *old = of(from);
  m->first = kw_copy_of(kw_cycle_arena(cycle), old->first), m->reserved = kw_copy_of(kw_cycle_arena(cycle), old->reserved);
  return KW_SUCCESS;
}

KW_ADDPOD(cycle, pod, added, node) {
  (void)node;
  of(cycle)->total += same_app(pod, added);
  return KW_SUCCESS;
}

KW_REMOVEPOD(cycle, pod, removed, node) {
  (void)node;
  of(cycle)->total -= same_app(pod, removed);
  return KW_SUCCESS;
}

// What is known of nodes, by the versions of what it was told in.
typedef struct { uint64_t version; int64_t requested, allocatable, image; } info;

static info look(core_Node node) {
  info of = {kw_node_info_version(node), 0, 0, 0};
  kw_NodeInfo told = kw_node_info(node);
  of.requested = kw_Resource_milli_cpu(kw_NodeInfo_requested(told)), of.allocatable = kw_Resource_milli_cpu(kw_NodeInfo_allocatable(told));
  KW_EACH(kw_ImageState, image, kw_NodeImages_images(kw_node_images(node)))
    if (kw_equal(kw_ImageState_name(image), "web:1")) of.image = kw_ImageState_size(image);
  KW_ASSERT(of.version == kw_node_info_version(node));
  return of;
}

KW_FILTER(cycle, pod, node) {
  info known = look(node);
  return kw_unschedulable("total=", of(cycle)->total, " here=", chosen(node, pod, false), "+", chosen(node, pod, true) - chosen(node, pod, false), " cpu=", known.requested, "/", known.allocatable, " image=", known.image);
}

KW_POSTFILTER(cycle, pod) {
  (void)cycle;
  if (kw_has(labels(pod), "clear")) return kw_nominate(KW(""));
  KW_EACH(kw_NodeStatus, status, kw_NodeStatuses_statuses(kw_node_statuses()))
    if (kw_NodeStatus_code(status) == KW_UNSCHEDULABLE && kw_equal(kw_NodeStatus_reason(status), "full")) return kw_nominate(kw_NodeStatus_node_name(status));
  uint32_t nodes = 0;
  kw_str name;
  for (kw_str names = kw_node_names(); kw_cut(&names, '\0', &name);) nodes++;
  return kw_unschedulable("none of ", nodes, " nodes");
}

KW_PRESCORE(cycle, pod) {
  (void)pod;
  memory *m = of(cycle);
  kw_str name;
  m->nodes = 0;
  for (kw_str names = kw_node_names(); kw_cut(&names, '\0', &name); m->nodes++)
    if (!m->nodes) m->first = kw_copy_of(kw_cycle_arena(cycle), name);
  return KW_SUCCESS;
}

KW_SCORE(cycle, pod, node) {
  (void)pod;
  memory *m = of(cycle);
  int64_t score = m->nodes * (kw_equal(m->first, meta_ObjectMeta_name(core_Node_metadata(node))) ? 10 : 1);
  kw_map of_node = meta_ObjectMeta_labels(core_Node_metadata(node));
  if (kw_has(of_node, "huge")) score *= 1ll << 40;
  else if (kw_has(of_node, "tiny")) score *= -(1ll << 40);
  return kw_scored(score);
}

static kw_str word(bool ok) { return ok ? KW("true ") : KW("false "); }

// use_state writes and reads the state that all instances share.
static kw_str use_state(core_Pod pod, kw_str how) {
  if (kw_equal(how, KW("keep"))) kw_state_keep();
  kw_buf b = {0};
  kw_put(&b, word(kw_state_add(KW("n"), 2, 3)));
  kw_put(&b, word(kw_state_add(KW("n"), 2, 3)));
  kw_put(&b, word(kw_state_add(KW("n"), -1, 0)));
  kw_put(&b, word(kw_state_put(KW("k/1"), KW("one"), KW_ANY_VERSION)));
  kw_put(&b, word(kw_state_put(KW("k/2"), KW("two"), KW_ANY_VERSION)));
  kw_put(&b, word(kw_state_put(KW("k/1"), KW("three"), 0)));
  kw_entry one;
  KW_ASSERT(kw_state_get(KW("k/1"), &one));
  kw_put(&b, word(kw_state_put(KW("k/1"), KW("uno"), (int64_t)one.version)));
  kw_put(&b, word(kw_state_delete(KW("k/2"), KW_ANY_VERSION)));
  kw_put(&b, word(kw_state_delete(KW("k/2"), KW_ANY_VERSION)));
  kw_state_list list = {.prefix = KW("k/")};
  for (kw_entry e; kw_state_next(&list, &e);) kw_put(&b, kw_text(e.key, "=", e.value, " "));
  kw_refs pods = kw_list_pods(KW(""), kw_text("app=", kw_value(labels(pod), "app")), true);
  uint32_t n = 0;
  for (uint32_t i = 0; i < pods.n; i++) n += meta_ObjectMeta_name(core_Pod_metadata(kw_pod(pods.of[i]))).n;
  return kw_text(kw_bytes(&b), kw_state_number(KW("n")), " ", n);
}

KW_RESERVE(cycle, pod) {
  kw_str node = kw_chosen_node(), refuse;
  of(cycle)->reserved = kw_copy_of(kw_cycle_arena(cycle), node);
  if (kw_lookup(labels(pod), "refuse", &refuse) && kw_equal(refuse, node)) return kw_unschedulable("refused");
  kw_str how;
  if (kw_lookup(labels(pod), "state", &how)) return kw_unschedulable(use_state(pod, how));
  return KW_SUCCESS;
}

KW_UNRESERVE(cycle, pod) {
  (void)pod;
  kw_event("Warning", "Unreserved", "Binding", kw_chosen_node(), ", reserved ", of(cycle)->reserved);
}

// reject rejects a Pod that waits.
static bool reject(kw_WaitingPod pod) {
  kw_strs plugins = {0};
  KW_EACH_STRING(plugin, kw_WaitingPod_pending_plugins(pod)) kw_strs_add(&kw_call, &plugins, plugin);
  return kw_reject_waiting_pod(kw_WaitingPod_uid(pod), kw_WaitingPod_name(pod), " waits for ", kw_join(plugins, ","));
}

KW_PERMIT(cycle, pod) {
  (void)cycle;
  kw_str permit = kw_value(labels(pod), "permit");
  if (kw_equal(permit, "wait")) return kw_wait(1500);
  if (kw_equal(permit, "deny")) return kw_unschedulable("denied on ", kw_chosen_node());
  bool allow = kw_equal(permit, "allow"), waited = false;
  if (allow || kw_equal(permit, "reject")) {
    KW_EACH(kw_WaitingPod, other, kw_WaitingPods_pods(kw_waiting_pods())) {
      kw_str uid = kw_WaitingPod_uid(other);
      if (!kw_equal(kw_value(labels(kw_waiting_pod(uid)), "group"), kw_value(labels(pod), "group"))) continue;
      waited = (allow ? kw_allow_waiting_pod(uid) : reject(other)) || waited;
    }
    return waited ? KW_SUCCESS : kw_unschedulable("nobody waits");
  }
  if (kw_equal(permit, "ghost")) {
    kw_str ghost = KW("ghost");
    if (kw_waiting_pod(ghost).v.bytes.n || kw_allow_waiting_pod(ghost) || kw_reject_waiting_pod(ghost, "")) return KW_SUCCESS;
    return kw_unschedulable("there is no ghost");
  }
  return KW_SUCCESS;
}

KW_PREBINDPREFLIGHT(cycle, pod) {
  (void)cycle;
  if (!kw_has(labels(pod), "claim")) return KW_SKIP;
  return kw_prebind(kw_has(labels(pod), "parallel"));
}

#define CLAIMS "v1/persistentvolumeclaims"

KW_PREBIND(cycle, pod) {
  (void)cycle;
  kw_str namespace = meta_ObjectMeta_namespace(core_Pod_metadata(pod)), claim = kw_value(labels(pod), "claim");
  kw_str found = kw_get_object(CLAIMS, namespace, claim);
  if (!found.n) return kw_error("no claim ", namespace, "/", claim);
  core_PersistentVolumeClaim pvc = core_PersistentVolumeClaim_of_proto(found);
  kw_str volume = core_PersistentVolumeClaimSpec_volumeName(core_PersistentVolumeClaim_spec(pvc));
  if (!volume.n) return kw_pending("claim ", claim, " is not bound");
  uint32_t own = kw_count(kw_Objects_objects(kw_list_all(CLAIMS, namespace, ""))), all = kw_count(kw_Objects_objects(kw_list_all(CLAIMS, "", "")));
  return kw_unschedulable(volume, ", ", own, " claims of ", all);
}

KW_BIND(cycle, pod) {
  if (!kw_equal(kw_value(labels(pod), "bind"), "self")) return KW_SKIP;
  kw_str node = kw_chosen_node(), reserved = of(cycle)->reserved;
  return kw_equal(node, reserved) ? KW_SUCCESS : kw_error(node, " is not ", reserved);
}

KW_POSTBIND(cycle, pod) {
  (void)cycle, (void)pod;
  kw_event("Normal", "Bound", "Binding", "to ", kw_chosen_node());
}
