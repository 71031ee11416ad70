// The queue guest of the conformance suite, by the SDK.

import { Action, ClusterEvent, EventObject, EventResource, Hint, Pod, PodHint, QueuedPod, SignFragment, Status } from "kubewasm/scheduler";

//kubewasm:name conformance-queue

function zone(o: EventObject): string {
  return o.node.metadata.labels.get("zone");
}

function nodeCame(pod: Pod, oldObject: EventObject, newObject: EventObject): Hint {
  const labels = pod.metadata.labels;
  if (labels.has("puzzled")) return Hint.failed("no hint");
  const want = labels.get("zone");
  return zone(newObject) == want && (!oldObject.present || zone(oldObject) != want) ? Hint.queue() : Hint.skip();
}

function podLeft(pod: Pod, oldObject: EventObject, newObject: EventObject): Hint {
  const labels = pod.metadata.labels;
  if (labels.has("puzzled")) return Hint.failed("no hint");
  return oldObject.pod.metadata.name == labels.get("after") ? Hint.queue() : Hint.skip();
}

function podCame(oldObject: EventObject, newObject: EventObject): PodHint {
  const labels = newObject.pod.metadata.labels;
  if (labels.has("puzzled")) return PodHint.failed("no hint");
  if (labels.has("everyone")) return PodHint.allPods();
  const before = labels.lookup("before");
  const hint = new PodHint();
  return before === null ? hint : hint.add("default", before).add("default", "always");
}

@scheduler
class Guest {
  preEnqueue(pod: Pod): Status | null {
    const hold = pod.metadata.labels.lookup("hold");
    if (hold === null) return null;
    return hold == "twice" ? Status.unresolvable("first").and("second") : Status.unresolvable("held: " + hold);
  }

  less(a: QueuedPod, b: QueuedPod): bool {
    const x = a.pod.metadata.labels.get("order");
    const y = b.pod.metadata.labels.get("order");
    if (x != y) return x < y;
    if (a.attempts != b.attempts) return a.attempts < b.attempts;
    const before = a.initialAttemptTimestamp - b.initialAttemptTimestamp;
    return before != 0 ? before < 0 : a.timestamp > b.timestamp;
  }

  eventsToRegister(): ClusterEvent[] {
    return [
      new ClusterEvent(EventResource.Node, Action.Add | Action.UpdateNodeLabel).withHint(nodeCame),
      new ClusterEvent(EventResource.AssignedPod, Action.Delete).withHint(podLeft),
      new ClusterEvent(EventResource.PersistentVolumeClaim, Action.Add),
      new ClusterEvent(EventResource.Pod, Action.Add).withPodHint(podCame),
    ];
  }

  signPod(pod: Pod, fragments: SignFragment[]): Status | null {
    const labels = pod.metadata.labels;
    if (labels.has("unlike")) return Status.unschedulable("unlike any other");
    fragments.push(new SignFragment("zone", `"${labels.get("zone")}"`));
    fragments.push(new SignFragment("labels", labels.length.toString()));
    return null;
  }
}
