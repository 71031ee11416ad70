// The group guest of the conformance suite, by the SDK.

import { Assignment, Code, CycleState, NodeInfo, Placement, Pod, PodGroup, Scores, Status, fail, snapshotNode, tryPodGroup } from "kubewasm/scheduler";

//kubewasm:name conformance-group

@scheduler
class Guest {
  podGroupPostFilter(state: CycleState, group: PodGroup, nominations: Assignment[]): Status | null {
    const evicted: string[] = [];
    const pods = group.unscheduledPods();
    for (let i = 0; i < pods.length; i++) {
      const m = pods[i].metadata;
      const uid = m.labels.lookup("evict");
      if (uid !== null) evicted.push(uid);
      const node = m.labels.lookup("node");
      if (node !== null) nominations.push(new Assignment(m.namespace, m.name, node));
    }
    if (evicted.length != 0) {
      const trial = tryPodGroup(evicted);
      nominations.length = 0;
      if (trial.code != Code.Success) return Status.unschedulable(`trial: ${<i32>trial.code} ${trial.reason}`);
      const fits = trial.assignments();
      for (let i = 0; i < fits.length; i++) nominations.push(fits[i]);
      return null;
    }
    if (nominations.length == 0) {
      return Status.unschedulable(`${group.type} ${group.namespace}/${group.name} of ${group.numUnscheduledPods} Pods is stuck`);
    }
    return null;
  }

  generatePlacements(state: CycleState, group: PodGroup, parent: string[], placements: Placement[]): Status | null {
    for (let i = 0; i < parent.length; i++) {
      const node = snapshotNode(parent[i]);
      if (node === null) continue;
      const rack = node.node.metadata.labels.lookup("rack");
      if (rack === null) continue;
      let at = 0;
      while (at < placements.length && placements[at].name != rack) at++;
      if (at == placements.length) placements.push(new Placement(rack, []));
      placements[at].nodeNames.push(parent[i]);
    }
    return placements.length == 0 ? Status.unschedulable("no racks") : null;
  }

  scorePlacement(state: CycleState, group: PodGroup, placement: Placement): i64 {
    if (placement.name == "odd") return fail(Status.error("odd"));
    let score: i64 = -placement.nodeNames.length;
    for (let i = 0; i < placement.assignments.length; i++) {
      if (placement.nodeNames.includes(placement.assignments[i].nodeName)) score += 10;
    }
    return placement.name == "huge" ? score << 40 : score;
  }

  normalizePlacementScore(state: CycleState, group: PodGroup, scores: Scores): Status | null {
    let highest = i64.MIN_VALUE;
    for (let i = 0; i < scores.length; i++) highest = max(highest, scores[i]);
    for (let i = 0; i < scores.length; i++) scores[i] = max<i64>(scores[i] + 100 - highest, 0);
    return null;
  }

  potentialVictims(state: CycleState, pod: Pod, node: NodeInfo, victims: Pod[]): Status | null {
    if (pod.metadata.labels.lookup("nominated") !== null) {
      const names: string[] = [];
      const nominated = node.nominatedPods();
      for (let i = 0; i < nominated.length; i++) names.push(nominated[i].metadata.name);
      return Status.unschedulable("nominated: " + names.join(","));
    }
    const pods = node.pods();
    for (let i = 0; i < pods.length; i++) {
      if (pods[i].metadata.labels.lookup("keep") === null) victims.push(pods[i]);
    }
    return null;
  }
}
