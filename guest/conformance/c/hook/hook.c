// The hook guest, which doc.go two directories above describes.
#include <kubewasm.h>

KW_HOOK(request) {
  kw_str tier = kw_value(kw_HookRequest_pod_labels(request), "tier");
  if (kw_equal(tier, "node")) tier = kw_value(kw_HookRequest_node_annotations(request), "tier");
  if (kw_equal(tier, "wrong")) return kw_error("tier is wrong");
  if (kw_equal(tier, "batch")) kw_decide_cpu_shares(128);
  if (kw_equal(tier, "idle")) kw_decide_cpu_shares(2), kw_decide_cfs_quota_us(-1);
  return KW_SUCCESS;
}
