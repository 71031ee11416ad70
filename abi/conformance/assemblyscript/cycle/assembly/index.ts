// The cycle guest of the conformance suite, by the SDK.

import {
  Code, CycleState, NodeInfo, NodeInfos, NodeStatus, Pod, StateData, Status, allowWaitingPod, countPods, event, get, list,
  rejectWaitingPod, snapshotNodeNames, waitingPod, waitingPods, listPods,
} from "kubewasm/scheduler";
import * as state from "kubewasm/state";
import { LabelSelector } from "kubewasm/api/meta";
import { Requirement, Selector } from "kubewasm/scheduling";
import { PersistentVolumeClaim } from "kubewasm/api/core";

//kubewasm:name conformance-cycle

/** useState writes and reads the state that all instances share. */
function useState(pod: Pod, how: string): string {
  if (how == "keep") state.keep();
  const answers: string[] = [];
  answers.push(state.add("n", 2, 3).toString());
  answers.push(state.add("n", 2, 3).toString());
  answers.push(state.add("n", -1, 0).toString());
  answers.push(state.putText("k/1", "one").toString());
  answers.push(state.putText("k/2", "two").toString());
  answers.push(state.putIf("k/1", String.UTF8.encode("three"), 0).toString());
  answers.push(state.putIf("k/1", String.UTF8.encode("uno"), state.get("k/1")!.version).toString());
  answers.push(state.remove("k/2").toString());
  answers.push(state.remove("k/2").toString());
  const entries = state.list("k/");
  for (let i = 0; i < entries.length; i++) answers.push(entries[i].key + "=" + entries[i].text);
  const n = state.get("n");
  answers.push(n === null ? "0" : n.number.toString());
  const pods = listPods("", "app=" + app(pod), true);
  let letters = 0;
  for (let i = 0; i < pods.length; i++) letters += pods[i].metadata.name.length;
  answers.push(letters.toString());
  return answers.join(" ");
}

/** Memory is what the guest remembers of a cycle. */
class Memory extends StateData {
  total: i32 = 0;
  nodes: i32 = 0;
  first: string = "";
  /** The name of a node, "nothing" before there is one. */
  reserved: string = "nothing";

  clone(): StateData {
    const m = new Memory();
    m.total = this.total;
    m.nodes = this.nodes;
    m.first = this.first;
    m.reserved = this.reserved;
    return m;
  }
}

function memoryOf(state: CycleState): Memory {
  return state.read<Memory>("memory")!;
}

function app(pod: Pod): string {
  return pod.metadata.labels.get("app");
}

/**
 * here counts the Pods of the Pod's app, in its namespace, on a node, but for those that are parked or
 * of two tiers: those that stay, and those that are on their way out.
 */
function here(node: NodeInfo, pod: Pod): string {
  const selector = new Selector(new LabelSelector());
  selector.add(new Requirement("app", "In", [app(pod)]));
  selector.add(new Requirement("app", "Exists", []));
  selector.add(new Requirement("parked", "DoesNotExist", []));
  selector.add(new Requirement("tier", "NotIn", ["out", "old"]));
  selector.add(new Requirement("app", "In", ["any", app(pod)]));
  const stay = countPods([node], pod.metadata.namespace, selector, false)[0];
  return `${stay}+${countPods([node], pod.metadata.namespace, selector, true)[0] - stay}`;
}

/** ofApp counts the Pods of an app on a node. */
function ofApp(node: NodeInfo, name: string): i32 {
  let n = 0;
  const pods = node.pods();
  for (let i = 0; i < pods.length; i++) if (app(pods[i]) == name) n++;
  return n;
}

@scheduler
class Guest {
  preFilter(state: CycleState, pod: Pod, nodes: NodeInfos): Status | null {
    const m = new Memory();
    for (let i = 0; i < nodes.length; i++) m.total += ofApp(nodes[i], app(pod));
    state.write("memory", m);
    return null;
  }

  addPod(state: CycleState, pod: Pod, added: Pod, node: NodeInfo): Status | null {
    if (app(added) == app(pod)) memoryOf(state).total++;
    return null;
  }

  removePod(state: CycleState, pod: Pod, removed: Pod, node: NodeInfo): Status | null {
    if (app(removed) == app(pod)) memoryOf(state).total--;
    return null;
  }

  filter(state: CycleState, pod: Pod, node: NodeInfo): Status | null {
    let size: i64 = 0;
    const images = node.imageStates();
    for (let i = 0; i < images.length; i++) if (images[i].name == "web:1") size = images[i].size;
    const usage = node.usage();
    return Status.unschedulable(
      `total=${memoryOf(state).total} here=${here(node, pod)} cpu=${usage.requested.milliCPU}/${usage.allocatable.milliCPU} image=${size}`);
  }

  postFilter(state: CycleState, pod: Pod, statuses: NodeStatus[]): Status | null {
    if (pod.metadata.labels.has("clear")) return Status.nominate("");
    for (let i = 0; i < statuses.length; i++) {
      if (statuses[i].code == Code.Unschedulable && statuses[i].reason == "full") return Status.nominate(statuses[i].nodeName);
    }
    return Status.unschedulable(`none of ${snapshotNodeNames().length} nodes`);
  }

  preScore(state: CycleState, pod: Pod, nodes: NodeInfos): Status | null {
    const m = memoryOf(state);
    m.nodes = nodes.length;
    m.first = nodes.name(0);
    return null;
  }

  score(state: CycleState, pod: Pod, node: NodeInfo): i64 {
    const m = memoryOf(state);
    const score: i64 = node.node.metadata.name == m.first ? 10 * m.nodes : m.nodes;
    const labels = node.node.metadata.labels;
    return labels.has("huge") ? score << 40 : labels.has("tiny") ? -score << 40 : score;
  }

  reserve(state: CycleState, pod: Pod, nodeName: string): Status | null {
    memoryOf(state).reserved = nodeName;
    if (pod.metadata.labels.get("refuse") == nodeName) return Status.unschedulable("refused");
    const how = pod.metadata.labels.get("state");
    return how.length ? Status.unschedulable(useState(pod, how)) : null;
  }

  unreserve(state: CycleState, pod: Pod, nodeName: string): void {
    event("Warning", "Unreserved", "Binding", `${nodeName}, reserved ${memoryOf(state).reserved}`);
  }

  permit(state: CycleState, pod: Pod, nodeName: string): Status | null {
    const labels = pod.metadata.labels;
    const action = labels.get("permit");
    if (action == "wait") return Status.wait(1500);
    if (action == "deny") return Status.unschedulable("denied on " + nodeName);
    if (action == "allow" || action == "reject") {
      let waited = false;
      const pods = waitingPods();
      for (let i = 0; i < pods.length; i++) {
        const w = pods[i];
        const other = waitingPod(w.uid);
        if (other === null || other.metadata.labels.get("group") != labels.get("group")) continue;
        const done = action == "allow" ? allowWaitingPod(w.uid) : rejectWaitingPod(w.uid, `${w.name} waits for ${w.pendingPlugins.join(",")}`);
        waited = done || waited;
      }
      if (!waited) return Status.unschedulable("nobody waits");
    }
    if (action == "ghost") {
      const waits = waitingPod("ghost") !== null;
      const allowed = allowWaitingPod("ghost");
      const rejected = rejectWaitingPod("ghost");
      if (!waits && !allowed && !rejected) return Status.unschedulable("there is no ghost");
    }
    return null;
  }

  preBindPreFlight(state: CycleState, pod: Pod, nodeName: string): Status | null {
    const labels = pod.metadata.labels;
    if (!labels.has("claim")) return Status.skip();
    return labels.has("parallel") ? Status.parallel() : null;
  }

  preBind(state: CycleState, pod: Pod, nodeName: string): Status | null {
    const claims = "v1/persistentvolumeclaims";
    const namespace = pod.metadata.namespace;
    const name = pod.metadata.labels.get("claim");
    const claim = get<PersistentVolumeClaim>(claims, namespace, name);
    if (claim === null) return Status.error(`no claim ${namespace}/${name}`);
    const volume = claim.spec.volumeName;
    if (volume.length == 0) return Status.pending(`claim ${name} is not bound`);
    return Status.unschedulable(
      `${volume}, ${list<PersistentVolumeClaim>(claims, namespace).length} claims of ${list<PersistentVolumeClaim>(claims).length}`);
  }

  bind(state: CycleState, pod: Pod, nodeName: string): Status | null {
    if (pod.metadata.labels.get("bind") != "self") return Status.skip();
    const reserved = memoryOf(state).reserved;
    return reserved == nodeName ? null : Status.error(`${nodeName} is not ${reserved}`);
  }

  postBind(state: CycleState, pod: Pod, nodeName: string): void {
    event("Normal", "Bound", "Binding", "to " + nodeName);
  }
}
