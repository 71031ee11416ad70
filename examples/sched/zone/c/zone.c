// The zone guest in C: what ../main.go is in Go, held against the same ../cases.yaml.
#include <kubewasm.h>

//kubewasm:name zone
//kubewasm:reads node.metadata.labels[topology.kubernetes.io/zone] node.spec.unschedulable node.spec.taints node.status.images
//kubewasm:reads pod.metadata.annotations[kubewasm.dev/zones] pod.spec.containers.image pod.spec.tolerations
//kubewasm:reads -pod.metadata.name -pod.metadata.uid

#define ZONE_LABEL "topology.kubernetes.io/zone"
#define ZONES_ANNOTATION "kubewasm.dev/zones"

// default_zones are for Pods without the annotation; none means every zone.
static kw_strs default_zones;

KW_CONFIG(KW_OPTION_STRINGS("defaultZones", default_zones)) { return KW_SUCCESS; }

// want is what prefilter finds out about a Pod, for all Nodes.
typedef struct { kw_strs zones, images; } want;

KW_PREFILTER(cycle, pod) {
  want *w = kw_cycle_begin(cycle, sizeof *w);
  kw_arena *arena = kw_cycle_arena(cycle);
  kw_str list, name;
  w->zones = default_zones;
  if (kw_lookup(meta_ObjectMeta_annotations(core_Pod_metadata(pod)), ZONES_ANNOTATION, &list)) {
    w->zones = (kw_strs){0};
    for (kw_str rest = list; kw_cut(&rest, ',', &name);) {
      name = kw_trim(name);
      if (!name.n) return kw_unresolvable("annotation " ZONES_ANNOTATION " has an empty zone in \"", list, "\"");
      kw_strs_add(arena, &w->zones, kw_copy_of(arena, name));
    }
  }
  KW_EACH(core_Container, c, core_PodSpec_containers(core_Pod_spec(pod)))
    kw_strs_add(arena, &w->images, kw_copy_of(arena, core_Container_image(c)));
  return KW_SUCCESS;
}

KW_FILTER(cycle, pod, node) {
  want *w = kw_cycle_state(cycle);
  KW_ASSERT(w);
  core_NodeSpec spec = core_Node_spec(node);
  kw_str zone = kw_value(meta_ObjectMeta_labels(core_Node_metadata(node)), ZONE_LABEL);
  if (w->zones.n && !kw_contains(w->zones, zone))
    return kw_unschedulable("node is in zone \"", zone, "\", the Pod wants ", kw_join(w->zones, " or "));
  if (core_NodeSpec_unschedulable(spec)) return kw_unresolvable("node is cordoned");
  core_Taint taint;
  if (kw_find_untolerated(core_NodeSpec_taints(spec), core_PodSpec_tolerations(core_Pod_spec(pod)), &taint))
    return kw_unresolvable("node has the taint ", kw_taint_text(taint), ", which the Pod does not tolerate");
  return KW_SUCCESS;
}

// The score is how many MiB of the Pod's images the node has already.
KW_SCORE(cycle, pod, node) {
  (void)pod;
  want *w = kw_cycle_state(cycle);
  KW_ASSERT(w);
  int64_t size = 0;
  KW_EACH(core_ContainerImage, image, core_NodeStatus_images(core_Node_status(node))) {
    bool wanted = false;
    KW_EACH_STRING(name, core_ContainerImage_names(image)) wanted = wanted || kw_contains(w->images, name);
    if (wanted) size += core_ContainerImage_sizeBytes(image);
  }
  return kw_scored(size >> 20);
}

// The best node gets the highest score, and the others their share of it.
KW_NORMALIZESCORE(cycle, pod) {
  (void)cycle, (void)pod;
  kw_scores scores = kw_node_scores();
  int64_t best = 0;
  for (uint32_t i = 0; i < scores.n; i++)
    if (scores.of[i] > best) best = scores.of[i];
  for (uint32_t i = 0; best && i < scores.n; i++) scores.of[i] = scores.of[i] * 100 / best;
  return kw_set_scores(scores);
}
