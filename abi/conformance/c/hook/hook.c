// The hook guest, which doc.go two directories above describes.
#include <kubewasm.h>

KW_HOOK(request) {
  kw_str tier = kw_value(kw_HookRequest_pod_labels(request), "tier");
  if (kw_equal(tier, "node")) tier = kw_value(kw_HookRequest_node_annotations(request), "tier");
  if (kw_equal(tier, "object")) {
    core_Node node = core_Node_of_json(kw_get_object("v1/nodes", "", kw_HookRequest_node_name(request)));
    tier = kw_value(meta_ObjectMeta_labels(core_Node_metadata(node)), "tier");
  }
  if (kw_equal(tier, "wrong")) return kw_error("tier is wrong");
  if (kw_equal(tier, "batch")) kw_decide_cpu_shares(128);
  if (kw_equal(tier, "idle")) kw_decide_cpu_shares(2), kw_decide_cfs_quota_us(-1);
  return KW_SUCCESS;
}
