// The guest writes what it reads of a CronTab, and of a StellarNode: see readers_test.go.

import { Request, Response } from "kubewasm/admission";
import { CronTab, CronTabSpecPolicy } from "./crontab";
import { StellarNode, StellarNodeSpecNodeType, StellarNodeSpecStorageRetentionPolicy } from "./stellarnode";

let text = "";

function line(name: string, value: string): void {
  text += name + "=" + value + "\n";
}

function number(name: string, has: bool, value: i64): void {
  line(name, has ? value.toString() : "-");
}

function readNode(node: StellarNode): void {
  const s = node.spec;
  line("name", node.metadata.name);
  if (s.nodeType == StellarNodeSpecNodeType.Validator) line("validates", "yes");
  line("network", s.network);
  line("version", s.version);
  line("image", s.hasImage ? s.image : "-");
  number("replicas", s.hasReplicas, s.replicas);
  number("suspended", s.hasSuspended, s.suspended ? 1 : 0);
  const requests = s.resources.requests;
  line("cpu", requests.has("cpu") ? requests.get("cpu").text : "-");
  line("size", s.storage.size);
  if (s.storage.retentionPolicy == StellarNodeSpecStorageRetentionPolicy.Delete) line("deletes", "yes");
  const validator = s.validatorConfig;
  line("seed", validator.seedSecretRef);
  number("archives", validator.hasEnableHistoryArchive, validator.enableHistoryArchive ? 1 : 0);
  const urls = validator.historyArchiveUrls;
  for (let i = 0; i < urls.length; i++) line("url", urls[i]);
  number("workers", s.horizonConfig.hasIngestWorkers, s.horizonConfig.ingestWorkers);
  number("events", s.sorobanConfig.hasMaxEventsPerRequest, s.sorobanConfig.maxEventsPerRequest);
  line("phase", node.status.phase);
  number("ready", node.status.hasReadyReplicas, node.status.readyReplicas);
}

@admission
class Reader {
  validate(req: Request): Response | null {
    const tab = CronTab.fromJSON(req.object());
    text = "";
    if (tab.kind == "StellarNode") {
      readNode(StellarNode.fromJSON(req.object()));
      return Response.deny(text);
    }
    const s = tab.spec;
    line("name", tab.metadata.name);
    line("app", tab.metadata.labels.get("app"));
    line("schedule", s.schedule);
    number("replicas", true, s.replicas);
    number("deadline", s.hasDeadline, s.deadline);
    number("threshold", s.hasThreshold, <i64>(s.threshold * 1000));
    number("suspend", s.hasSuspend, s.suspend ? 1 : 0);
    line("policy", s.hasPolicy ? s.policy : "-");
    if (s.policy == CronTabSpecPolicy.Forbid) line("forbid", "yes");
    number("since", s.hasSince, s.since.seconds);
    number("nanos", s.hasSince, s.since.nanos);
    line("secret", String.UTF8.decode(s.secret.buffer.slice(s.secret.byteOffset, s.secret.byteOffset + s.secret.length)));
    line("port", s.hasPort ? s.port.text : "-");
    number("memory", s.hasMemory, s.memory.milliValue());
    const args = s.args;
    for (let i = 0; i < args.length; i++) line("arg", args[i]);
    const codes = s.codes;
    for (let i = 0; i < codes.length; i++) number("code", true, codes[i]);
    const matrix = s.matrix;
    for (let i = 0; i < matrix.length; i++) line("row", matrix[i].text);
    const keys = ["a", "é\"", "none"];
    for (let i = 0; i < keys.length; i++) {
      line("label", s.labels.get(keys[i]));
      line("limit", s.limits.has(keys[i]) ? s.limits.get(keys[i]).text : "-");
      const queue = s.queues.get(keys[i]);
      number("queue", queue.hasLength, queue.length);
    }
    const containers = s.containers;
    for (let i = 0; i < containers.length; i++) {
      line("image", containers[i].image);
      const env = containers[i].env;
      for (let j = 0; j < env.length; j++) {
        line("env", env[j].name);
        line("value", env[j].hasValue ? env[j].value : "-");
      }
    }
    line("template", s.template.text);
    line("anything", s.anything.text);
    number("active", tab.status.hasActive, tab.status.active);
    return Response.deny(text);
  }
}
