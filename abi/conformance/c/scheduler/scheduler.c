// The scheduler guest, which doc.go two directories above describes.
#include <kubewasm.h>

static kw_str label;

KW_CONFIG(KW_OPTION_STRING("label", label)) {
  if (!label.n || label.n > 32) return kw_error("want {\"label\":\"\xe2\x80\xa6\"}");
  kw_log(KW_INFO, "configured", "label", label);
  return KW_SUCCESS;
}

// want is the value of the label, which prefilter remembers.
typedef struct { kw_str value; } want;

static kw_map labels(core_Node node) { return meta_ObjectMeta_labels(core_Node_metadata(node)); }

KW_PREFILTER(cycle, pod) {
  kw_map of = meta_ObjectMeta_labels(core_Pod_metadata(pod));
  kw_str value, only;
  if (kw_has(of, "skip")) return KW_SKIP;
  if (!kw_lookup(of, label, &value)) return kw_unresolvable("the Pod has no ", label);
  want *w = kw_cycle_begin(cycle, sizeof *w);
  w->value = kw_copy_of(kw_cycle_arena(cycle), value);
  if (kw_lookup(of, "only", &only)) kw_only_node(only);
  return KW_SUCCESS;
}

KW_FILTER(cycle, pod, node) {
  (void)pod;
  want *w = kw_cycle_state(cycle);
  kw_str closed, got, taint = {0, 0};
  KW_ASSERT(w);
  if (kw_has(labels(node), "trap")) kw_panic("the Node ", meta_ObjectMeta_name(core_Node_metadata(node)), " has the label trap");
  if (kw_lookup(meta_ObjectMeta_annotations(core_Node_metadata(node)), "closed", &closed)) {
    // Neither a map nor a part of a Node: the host has nothing of them.
    KW_ASSERT(kw_host_object_entry(kw_ref(node), 13, "closed", 6, 0, 0) == (uint32_t)-1);
    KW_ASSERT(kw_host_object_part(kw_ref(node), 100, -1ull, 0, 0) == 0);
    return kw_unschedulable("closed: ", closed);
  }
  KW_EACH(core_Taint, t, core_NodeSpec_taints(core_Node_spec(node))) taint = core_Taint_key(t);
  if (taint.p) return kw_unresolvable("tainted: ", taint);
  got = kw_value(labels(node), label);
  if (kw_equal(got, w->value)) return KW_SUCCESS;
  return kw_unschedulable("want ", w->value, ", got ", got);
}

KW_SCORE(cycle, pod, node) {
  (void)cycle, (void)pod;
  return kw_scored(10 * (int64_t)kw_count(kw_entries(labels(node))));
}

KW_NORMALIZESCORE(cycle, pod) {
  (void)pod;
  want *w = kw_cycle_state(cycle);
  KW_ASSERT(w);
  kw_str names = kw_node_names(), name;
  kw_scores scores = kw_node_scores();
  for (uint32_t i = 0; i < scores.n && kw_cut(&names, '\0', &name); i++) scores.of[i] = kw_equal(name, w->value) ? 100 : 100 - scores.of[i];
  return kw_set_scores(scores);
}
