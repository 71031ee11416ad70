// The named guest of the conformance suite, by the SDK.

import { Action, ClusterEvent, Code, CycleState, EventObject, EventResource, Hint, NodeInfo, Pod, Status, activate, applyAnnotations, applyStatus, awaitObject, getJSON } from "kubewasm/scheduler";
import { Sample } from "kubewasm/api/metrics";
import { podRequests, qosClass } from "kubewasm/scheduling";

//kubewasm:name conformance-named

function changed(pod: Pod, oldObject: EventObject, newObject: EventObject): Hint {
  const bytes = newObject.bytes();
  return bytes !== null && String.UTF8.decode(bytes).includes(`"for":"${pod.metadata.name}"`) ? Hint.queue() : Hint.skip();
}

const things = "example.com/v1/things";

@scheduler
class Guest {
  eventsToRegister(): ClusterEvent[] {
    return [
      new ClusterEvent(EventResource.Node, Action.Add),
      ClusterEvent.of(things, Action.Add | Action.Update).withHint(changed),
    ];
  }

  permit(state: CycleState, pod: Pod, nodeName: string): Status | null {
    activate(["shop", "a", "bank", "b"]);
    return null;
  }

  filter(state: CycleState, pod: Pod, node: NodeInfo): Status | null {
    let reason = qosClass(pod);
    const requests = podRequests(pod);
    const names = ["cpu", "memory", "hugepages-2Mi", "example.com/gpu"];
    for (let i = 0; i < names.length; i++) reason += " " + (requests.has(names[i]) ? requests.get(names[i]).milliValue().toString() : "0");
    return Status.unschedulable(reason);
  }

  score(state: CycleState, pod: Pod, node: NodeInfo): i64 {
    const found = getJSON<Sample>("metrics.kubewasm.dev/v1/load", "", node.node.metadata.name);
    return found === null ? 50 : <i64>(100.0 * found.value);
  }

  preBind(state: CycleState, pod: Pod, nodeName: string): Status | null {
    const name = pod.metadata.name;
    if (getJSON<Sample>(things, "shop", name) === null) {
      awaitObject(things, "shop", name, 600000);
      return new Status(Code.Wait, "no thing " + name);
    }
    applyAnnotations(things, "shop", name, ["example.com/a", '"ä', "example.com/by", name]);
    applyStatus(things, "shop", name, '{"phase":"Bound"}');
    return null;
  }
}
