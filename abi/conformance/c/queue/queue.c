// The queue guest, which doc.go two directories above describes.
#include <kubewasm.h>

static kw_map labels(core_Pod pod) { return meta_ObjectMeta_labels(core_Pod_metadata(pod)); }

KW_PREENQUEUE(pod) {
  kw_str hold;
  if (!kw_lookup(labels(pod), "hold", &hold)) return KW_SUCCESS;
  if (kw_equal(hold, "twice")) return kw_unresolvable("first", KW("\0"), "second");
  return kw_unresolvable("held: ", hold);
}

static int sign(int64_t n) { return (n > 0) - (n < 0); }

KW_QUEUESORT_BY(first, second) {
  int order = kw_compare(kw_value(labels(first.pod), "order"), kw_value(labels(second.pod), "order"));
  if (!order) order = sign(first.attempts - second.attempts);
  if (!order) order = sign(first.first_attempt - second.first_attempt);
  return order ? order : sign(second.time - first.time);
}

KW_EVENTS(KW_EVENT(Node, KW_ADD | KW_UPDATE_NODE_LABEL | KW_HINT), KW_EVENT(AssignedPod, KW_DELETE | KW_HINT),
          KW_EVENT(PersistentVolumeClaim, KW_ADD), KW_EVENT(Pod, KW_ADD | KW_PREHINT))

KW_QUEUEINGHINT(event, pod, old, new) {
  if (kw_has(labels(pod), "puzzled")) return kw_error("no hint");
  if (event == 1) return kw_queue(kw_equal(kw_value(labels(pod), "after"), meta_ObjectMeta_name(core_Pod_metadata(kw_pod(old)))));
  kw_str zone = kw_value(labels(pod), "zone");
#define ZONE(node) kw_value(meta_ObjectMeta_labels(core_Node_metadata(kw_node(node))), "zone")
  return kw_queue(kw_equal(zone, ZONE(new)) && (!old || !kw_equal(zone, ZONE(old))));
}

KW_PREQUEUEINGHINT(event, old, new) {
  (void)event, (void)old;
  kw_map of = labels(kw_pod(new));
  kw_strs pods = {0};
  kw_str before;
  if (kw_has(of, "puzzled")) return kw_error("no hint");
  if (kw_has(of, "everyone")) return KW_SUCCESS;
  if (kw_lookup(of, "before", &before)) {
    const kw_str names[] = {KW("default"), before, KW("default"), KW("always")};
    for (int i = 0; i < 4; i++) kw_strs_add(&kw_call, &pods, names[i]);
  }
  kw_hint_pods(pods);
  return KW_SUCCESS;
}

KW_SIGNPOD(pod) {
  if (kw_has(labels(pod), "unlike")) return kw_unschedulable("unlike any other");
  return kw_sign("zone", kw_json_of(kw_value(labels(pod), "zone")), "labels", kw_count(kw_entries(labels(pod))));
}
