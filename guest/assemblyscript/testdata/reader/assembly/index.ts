// The reader reads everything of a Pod in JSON, of the kinds of fields that there are.

import { Json, Request, Response } from "kubewasm/admission";
import { Pod } from "kubewasm/api/core";

@admission
class Reader {
  validate(req: Request): Response | null {
    const raw = req.object();
    const pod = Pod.fromJSON(raw);
    const labels = pod.metadata.labels;
    let text = pod.metadata.name + labels.get("app") + labels.get("owner") + labels.keys().join(",") + labels.values().join(",");
    const containers = pod.spec.containers;
    for (let i = 0; i < containers.length; i++) {
      const c = containers[i];
      text += c.name + c.image + c.command.join(" ") + c.resources.requests.get("cpu").text;
      for (let j = 0; j < c.ports.length; j++) text += c.ports[j].containerPort.toString();
    }
    text += pod.spec.priority.toString() + pod.spec.hostNetwork.toString() + pod.metadata.creationTimestamp.seconds.toString();
    const tree = Json.read(raw);
    if (tree !== null) text += tree.toString();
    return Response.deny(text);
  }
}
