// The tainttoleration guest is the scheduler's plugin TaintToleration.

import { CycleState, NodeInfo, Pod, Scores, Status } from "kubewasm/scheduler";
import { findUntolerated, tolerates } from "kubewasm/scheduling";

@scheduler
class TaintToleration {
  filter(state: CycleState, pod: Pod, node: NodeInfo): Status | null {
    if (findUntolerated(node.node.spec.taints, pod.spec.tolerations) === null) return null;
    return Status.unresolvable("node(s) had untolerated taint(s)");
  }

  /** score counts the taints that the Pod would rather not have. */
  score(state: CycleState, pod: Pod, node: NodeInfo): i64 {
    let count: i64 = 0;
    const taints = node.node.spec.taints;
    for (let i = 0; i < taints.length; i++) {
      if (taints[i].effect != "PreferNoSchedule") continue;
      let tolerated = false;
      const tolerations = pod.spec.tolerations;
      for (let j = 0; j < tolerations.length && !tolerated; j++) {
        const effect = tolerations[j].effect;
        tolerated = (effect.length == 0 || effect == "PreferNoSchedule") && tolerates(tolerations[j], taints[i]);
      }
      if (!tolerated) count++;
    }
    return count;
  }

  /** normalizeScore turns the counts round: none is best. */
  normalizeScore(state: CycleState, pod: Pod, scores: Scores): Status | null {
    let most: i64 = 0;
    for (let i = 0; i < scores.length; i++) most = max(most, scores[i]);
    for (let i = 0; i < scores.length; i++) scores[i] = most == 0 ? 100 : 100 - scores[i] * 100 / most;
    return null;
  }
}
