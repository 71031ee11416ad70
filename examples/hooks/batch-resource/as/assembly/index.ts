// The hook batch-resource in AssemblyScript: what ../../main.go is in Go, held against the same
// cases.

import { Decision, Level, Request, UNLIMITED } from "kubewasm/hooks";
import { Json, Kind, quote } from "kubewasm/json";
import { warn } from "kubewasm/log";
import { Quantity } from "kubewasm/values";

//kubewasm:name batch-resource

const ANNOTATION = "node.koordinator.sh/extended-resource-spec";
const PERIOD: i64 = 100000; // Microseconds, the kernel's default.
const LEAST_QUOTA: i64 = 1000;

/** Sum is the amounts of a resource in all containers. */
class Sum {
  total: i64 = 0;
  unlimited: bool = false;
  constructor(public list: string, public resource: string) {}

  /** add adds the amount of a container, and returns what is wrong with it. */
  add(container: Json): string {
    const raw = container.get(this.list).get(this.resource);
    let n: i64 = 0;
    if (raw.kind != Kind.None) {
      const q = Quantity.of(raw.kind == Kind.String ? raw.text : raw.toString());
      if (!q.isValid) return `${this.resource} is ${raw.toString()}: it is no quantity`;
      n = max<i64>(q.value(), 0);
    }
    if (n == 0) this.unlimited = true;
    this.total += n;
    return this.total < 0 || this.total > i64.MAX_VALUE / PERIOD ? "more than there can be" : "";
  }
}

/** unread logs an annotation that cannot be read: the pod keeps the resources of the kubelet. */
function unread(req: Request, wrong: string): Error | null {
  warn("a pod keeps the resources of the kubelet: its annotation cannot be read", "pod", req.pod.name, "annotation", ANNOTATION, "err", wrong);
  return null;
}

@hook
class Batch {
  /** Whether there are quotas. */
  @config cfsQuota: bool = true;
  /** Divides quotas, in hundredths; 100 or less does not. */
  @config ratioPercent: i64 = 0;

  decide(req: Request, d: Decision): Error | null {
    if (req.level == Level.QOS || req.podLabels.get("koordinator.sh/qosClass") != "BE") return null;
    const text = req.podAnnotations.lookup(ANNOTATION);
    if (text === null) return null;
    const spec = Json.parse(text);
    if (spec === null) return unread(req, "not valid JSON");
    const containers = spec.get("containers");
    const names = containers.keys();
    const sums = [new Sum("requests", "kubernetes.io/batch-cpu"), new Sum("limits", "kubernetes.io/batch-cpu"), new Sum("limits", "kubernetes.io/batch-memory")];
    let some = false;
    for (let i = 0; i < names.length; i++) {
      if (req.level == Level.Container && names[i] != req.container.name) continue;
      some = true;
      for (let j = 0; j < sums.length; j++) {
        const wrong = sums[j].add(containers.at(i));
        if (wrong.length != 0) return unread(req, `container ${quote(names[i])}: ${wrong}`);
      }
    }
    if (!some) return null;
    d.setCpuShares(min<i64>(max<i64>(sums[0].total * 1024 / 1000, 2), 262144));
    let quota = UNLIMITED;
    if (!sums[1].unlimited && this.cfsQuota) {
      d.setCfsPeriod(PERIOD); // The kubelet's may be another.
      quota = max(sums[1].total * PERIOD / 1000, LEAST_QUOTA);
      if (this.ratioPercent > 100) quota = max((quota * 100 + this.ratioPercent - 1) / this.ratioPercent, LEAST_QUOTA);
    }
    d.setCfsQuota(quota);
    d.setMemoryLimit(sums[2].unlimited ? UNLIMITED : sums[2].total);
    return null;
  }
}
