// The scheduler guest of the conformance suite, by the SDK.

import { CycleState, NodeInfo, NodeInfos, Pod, Scores, StateText, Status } from "kubewasm/scheduler";
import * as log from "kubewasm/log";

//kubewasm:name conformance-scheduler

@scheduler
class Guest {
  @config label: string = "";

  configure(): Error | null {
    if (this.label.length == 0 || this.label.length > 32) return new Error(`want {"label":"…"}`);
    log.info("configured", "label", this.label);
    return null;
  }

  preFilter(state: CycleState, pod: Pod, nodes: NodeInfos): Status | null {
    const labels = pod.metadata.labels;
    if (labels.has("skip")) return Status.skip();
    const want = labels.lookup(this.label);
    if (want === null) return Status.unresolvable("the Pod has no " + this.label);
    state.write("want", new StateText(want));
    const only = labels.lookup("only");
    return only === null ? null : Status.only([only]);
  }

  private wanted(state: CycleState): string {
    return state.read<StateText>("want")!.text;
  }

  filter(state: CycleState, pod: Pod, node: NodeInfo): Status | null {
    const metadata = node.node.metadata;
    const labels = metadata.labels;
    if (labels.has("trap")) throw new Error("trap");
    const why = metadata.annotations.lookup("closed");
    if (why !== null) return Status.unschedulable("closed: " + why);
    const taints = node.node.spec.taints;
    if (taints.length != 0) return Status.unresolvable("tainted: " + taints[taints.length - 1].key);
    const want = this.wanted(state);
    const got = labels.get(this.label);
    return want == got ? null : Status.unschedulable(`want ${want}, got ${got}`);
  }

  score(state: CycleState, pod: Pod, node: NodeInfo): i64 {
    return 10 * node.node.metadata.labels.length;
  }

  normalizeScore(state: CycleState, pod: Pod, scores: Scores): Status | null {
    const want = this.wanted(state);
    for (let i = 0; i < scores.length; i++) scores[i] = scores.name(i) == want ? 100 : 100 - scores[i];
    return null;
  }
}
