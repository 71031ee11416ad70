// The helpers guest answers with what the functions of kubewasm/scheduling say of a Pod: its
// requests, its host ports, which of these conflict, and whether its first constraint counts the
// old object. Of a Pod with the annotation text it answers how long that is, plain and quoted,
// and with its end.

import { Request, Response } from "kubewasm/admission";
import { Pod } from "kubewasm/api/core";
import { quote } from "kubewasm/json";
import { conflictOnHost, hostPorts, podRequests, spreadSelector } from "kubewasm/scheduling";

@admission
class Helpers {
  validate(req: Request): Response | null {
    const pod = Pod.fromJSON(req.object());
    const long = pod.metadata.annotations.get("text");
    if (long.length != 0) return Response.deny(`${long.length} ${quote(long).length} ${long.substring(long.length - 10)}`);
    let text = "";
    const requests = podRequests(pod);
    const names = requests.keys();
    for (let i = 0; i < names.length; i++) text += `${names[i]}=${requests.get(names[i]).text}\n`;
    const ports = hostPorts(pod);
    for (let i = 0; i < ports.length; i++) {
      text += `port ${ports[i].hostIP}:${ports[i].hostPort}`;
      for (let j = 0; j < i; j++) if (conflictOnHost(ports[i], ports[j])) text += ` ${j}`;
      text += "\n";
    }
    const constraints = pod.spec.topologySpreadConstraints;
    if (constraints.length != 0) {
      const selector = spreadSelector(constraints[0], pod);
      const other = Pod.fromJSON(req.oldObject());
      text += `counts ${selector.matches(other.metadata.labels)}\n`;
    }
    return Response.deny(text);
  }
}
