// The hook of ../go in C.
#include <kubewasm.h>

//kubewasm:name panics
//kubewasm:version 1.2.3
//kubewasm:source https://example.com/panics
//kubewasm:licenses Apache-2.0 OR MIT
//kubewasm:reads pod_labels[tier] pod_annotations
//kubewasm:decides cpu_shares cfs_quota_us

static int64_t divided_by(kw_str tier) {
  KW_ASSERT(tier.n != 0);
  return 100 / tier.n;
}

KW_HOOK(request) {
  kw_decide_cpu_shares(divided_by(kw_value(kw_HookRequest_pod_labels(request), "tier")));
  return KW_SUCCESS;
}
