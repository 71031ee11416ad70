// The hook of ../../go in AssemblyScript.

import { Decision, Request } from "kubewasm/hooks";

//kubewasm:name panics
//kubewasm:version 1.2.3
//kubewasm:source https://example.com/panics
//kubewasm:licenses Apache-2.0 OR MIT
//kubewasm:reads pod_labels[tier] pod_annotations
//kubewasm:decides cpu_shares cfs_quota_us

function dividedBy(tier: string): i64 {
  assert(tier.length > 0, "the tier is empty");
  return 100 / tier.length;
}

@hook
class Plugin {
  decide(req: Request, d: Decision): Error | null {
    d.setCpuShares(dividedBy(req.podLabels.get("tier")));
    return null;
  }
}
