// The group guest, which doc.go two directories above describes.
#include <kubewasm.h>

// try_without tries the group without Pods, and nominates what the trial assigned.
static kw_result try_without(kw_strs uids) {
  kw_Trial trial = kw_try_pod_group(uids);
  kw_buf nominations = {0};
  if (kw_Trial_code(trial)) return kw_unschedulable("trial: ", kw_Trial_code(trial), " ", kw_Trial_reason(trial));
  KW_EACH(kw_Assignment, a, kw_Trial_assignments(trial))
    kw_put_assignment(&nominations, 1, kw_Assignment_namespace(a), kw_Assignment_name(a), kw_Assignment_node_name(a));
  return kw_set_nominations(&nominations);
}

KW_PODGROUPPOSTFILTER(cycle) {
  (void)cycle;
  kw_PodGroup group = kw_pod_group();
  int32_t pods = kw_PodGroup_unscheduled_pods(group);
  kw_strs uids = {0};
  kw_buf nominations = {0};
  for (int32_t i = 0; i < pods; i++) {
    meta_ObjectMeta of = core_Pod_metadata(kw_pod_group_pod((uint32_t)i));
    kw_str value;
    if (kw_lookup(meta_ObjectMeta_labels(of), "evict", &value)) kw_strs_add(&kw_call, &uids, value);
    if (kw_lookup(meta_ObjectMeta_labels(of), "node", &value))
      kw_put_assignment(&nominations, 1, meta_ObjectMeta_namespace(of), meta_ObjectMeta_name(of), value);
  }
  if (uids.n) return try_without(uids);
  if (nominations.n) return kw_set_nominations(&nominations);
  return kw_unschedulable(kw_PodGroup_type(group), " ", kw_PodGroup_namespace(group), "/", kw_PodGroup_name(group), " of ", pods, " Pods is stuck");
}

KW_GENERATEPLACEMENTS(cycle) {
  (void)cycle;
  enum { RACKS = 64 };
  kw_str racks[RACKS], name, rack;
  kw_buf placements[RACKS], all = {0};
  uint32_t n = 0, i;
  for (kw_str names = kw_node_names(); kw_cut(&names, '\0', &name);) {
    core_Node node = kw_node_by_name(name);
    if (!kw_ref(node) || !kw_lookup(meta_ObjectMeta_labels(core_Node_metadata(node)), "rack", &rack)) continue;
    for (i = 0; i < n && !kw_equal(racks[i], rack);) i++;
    if (i == n) {
      KW_ASSERT(n < RACKS);
      racks[n] = rack, placements[n++] = (kw_buf){0};
      kw_put_bytes(&placements[i], 1, rack);
    }
    kw_put_bytes(&placements[i], 2, name);
  }
  if (!n) return kw_unschedulable("no racks");
  for (i = 0; i < n; i++) kw_put_message(&all, 1, &placements[i]);
  return kw_set_placements(&all);
}

KW_SCOREPLACEMENT(cycle) {
  (void)cycle;
  kw_Placement placement = kw_placement();
  if (kw_equal(kw_Placement_name(placement), "odd")) return kw_error("odd");
  kw_strs nodes = {0};
  KW_EACH_STRING(node, kw_Placement_node_names(placement)) kw_strs_add(&kw_call, &nodes, node);
  int64_t score = -(int64_t)nodes.n;
  KW_EACH(kw_Assignment, a, kw_Placement_assignments(placement)) score += 10 * kw_contains(nodes, kw_Assignment_node_name(a));
  return kw_scored(kw_equal(kw_Placement_name(placement), "huge") ? score * (1ll << 40) : score);
}

KW_NORMALIZEPLACEMENTSCORE(cycle) {
  (void)cycle;
  kw_scores scores = kw_node_scores();
  int64_t highest = scores.n ? scores.of[0] : 0;
  for (uint32_t i = 1; i < scores.n; i++)
    if (scores.of[i] > highest) highest = scores.of[i];
  for (uint32_t i = 0; i < scores.n; i++) {
    scores.of[i] += 100 - highest;
    if (scores.of[i] < 0) scores.of[i] = 0;
  }
  return kw_set_scores(scores);
}

KW_POTENTIALVICTIMS(cycle, pod, node) {
  (void)cycle;
  kw_str value;
  if (kw_lookup(meta_ObjectMeta_labels(core_Pod_metadata(pod)), "nominated", &value)) {
    kw_refs nominated = kw_nominated_pods(node);
    kw_strs names = {0};
    for (uint32_t i = 0; i < nominated.n; i++) kw_strs_add(&kw_call, &names, meta_ObjectMeta_name(core_Pod_metadata(kw_pod(nominated.of[i]))));
    return kw_unschedulable("nominated: ", kw_join(names, KW(",")));
  }
  enum { VICTIMS = 64 };
  uint64_t victims[VICTIMS];
  uint32_t n = 0;
  kw_refs pods = kw_node_pods(node);
  for (uint32_t i = 0; i < pods.n; i++) {
    if (kw_lookup(meta_ObjectMeta_labels(core_Pod_metadata(kw_pod(pods.of[i]))), "keep", &value)) continue;
    KW_ASSERT(n < VICTIMS);
    victims[n++] = pods.of[i];
  }
  kw_victims((kw_refs){victims, n});
  return KW_SUCCESS;
}
