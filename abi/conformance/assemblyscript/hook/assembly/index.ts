// The hook guest of the conformance suite, by the SDK.

import { Decision, Request, get } from "kubewasm/hooks";
import { Node } from "kubewasm/api/core";

//kubewasm:name conformance-hook

@hook
class Guest {
  decide(req: Request, d: Decision): Error | null {
    let tier = req.podLabels.get("tier");
    if (tier == "node") tier = req.nodeAnnotations.get("tier");
    if (tier == "object") {
      const node = get<Node>("v1/nodes", req.nodeName);
      tier = node === null ? "" : node.metadata.labels.get("tier");
    }
    if (tier == "batch") {
      d.setCpuShares(128);
    } else if (tier == "idle") {
      d.setCpuShares(2);
      d.setCfsQuota(-1);
    } else if (tier == "wrong") {
      return new Error("tier is wrong");
    }
    return null;
  }
}
