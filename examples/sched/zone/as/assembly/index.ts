// The zone guest in AssemblyScript: what ../../main.go is in Go, held against the same cases.

import { CycleState, NodeInfo, NodeInfos, Pod, Scores, StateData, Status } from "kubewasm/scheduler";
import { findUntolerated, taintText } from "kubewasm/scheduling";

//kubewasm:name zone
//kubewasm:reads node.metadata.labels[topology.kubernetes.io/zone] node.spec.unschedulable node.spec.taints node.status.images
//kubewasm:reads pod.metadata.annotations[kubewasm.dev/zones] pod.spec.containers.image pod.spec.tolerations
//kubewasm:reads -pod.metadata.name -pod.metadata.uid

const ZONES = "kubewasm.dev/zones";

/** Want is what preFilter finds out about a Pod, for all nodes. */
class Want extends StateData {
  images: string[] = [];

  constructor(public zones: string[]) {
    super();
  }

  clone(): StateData {
    return this; // Nothing changes it.
  }
}

@scheduler
class Zone {
  /** The zones of Pods without the annotation; none means every zone. */
  @config defaultZones: string[] = [];

  preFilter(state: CycleState, pod: Pod, nodes: NodeInfos): Status | null {
    const want = new Want(this.defaultZones);
    const list = pod.metadata.annotations.lookup(ZONES);
    if (list !== null) {
      want.zones = list.split(",").map<string>(name => name.trim());
      if (want.zones.includes("")) return Status.unresolvable(`annotation ${ZONES} has an empty zone in "${list}"`);
    }
    want.images = pod.spec.containers.map<string>(c => c.image);
    state.write("want", want);
    return null;
  }

  filter(state: CycleState, pod: Pod, node: NodeInfo): Status | null {
    const want = state.read<Want>("want")!;
    const zone = node.node.metadata.labels.get("topology.kubernetes.io/zone");
    if (want.zones.length != 0 && !want.zones.includes(zone)) {
      return Status.unschedulable(`node is in zone "${zone}", the Pod wants ${want.zones.join(" or ")}`);
    }
    const spec = node.node.spec;
    if (spec.unschedulable) return Status.unresolvable("node is cordoned");
    const taint = findUntolerated(spec.taints, pod.spec.tolerations);
    if (taint !== null) return Status.unresolvable(`node has the taint ${taintText(taint)}, which the Pod does not tolerate`);
    return null;
  }

  /** The score is how many MiB of the Pod's images the node has already. */
  score(state: CycleState, pod: Pod, node: NodeInfo): i64 {
    const wanted = state.read<Want>("want")!.images;
    let size: i64 = 0;
    const images = node.node.status.images;
    for (let i = 0; i < images.length; i++) {
      const names = images[i].names;
      for (let j = 0; j < names.length; j++) {
        if (wanted.includes(names[j])) {
          size += images[i].sizeBytes;
          break;
        }
      }
    }
    return size >> 20;
  }

  /** The best node gets the highest score, and the others their share of it. */
  normalizeScore(state: CycleState, pod: Pod, scores: Scores): Status | null {
    let best: i64 = 0;
    for (let i = 0; i < scores.length; i++) best = max(best, scores[i]);
    for (let i = 0; best != 0 && i < scores.length; i++) scores[i] = scores[i] * 100 / best;
    return null;
  }
}
