// The policy required-labels in AssemblyScript: what ../../main.go is in Go, held against the
// same cases.

import { FieldError, Json, Operation, Request, Response, oldPodOf, podOf } from "kubewasm/admission";

//kubewasm:name required-labels
//kubewasm:matches CREATE,UPDATE pods pods/ephemeralcontainers pods/status replicationcontrollers podtemplates
//kubewasm:matches CREATE,UPDATE deployments.apps replicasets.apps statefulsets.apps daemonsets.apps jobs.batch cronjobs.batch

function hasPrefix(image: string, prefixes: string[]): bool {
  for (let i = 0; i < prefixes.length; i++) if (image.startsWith(prefixes[i])) return true;
  return prefixes.length == 0;
}

@admission
class Policy {
  /** Keys that every Pod must have. */
  @config labels: string[] = [];
  /** Prefixes that images may have: "registry.example.com/". */
  @config registries: string[] = [];

  validate(req: Request): Response | null {
    if (req.operation == Operation.Delete) return null; // It has no object.
    const pod = podOf(req);
    if (pod === null) return Response.errored(`a ${req.kind.kind} is no Pod and has no template of one`);
    const old = oldPodOf(req);
    const response = Response.allow();
    for (let i = 0; i < this.labels.length; i++) {
      const key = this.labels[i];
      if (pod.metadata.labels.has(key)) continue;
      if (old !== null && !old.metadata.labels.has(key)) continue; // It was not there before either.
      response.withFieldError(FieldError.required(pod.path.child("metadata").child("labels").key(key), "every Pod must have it"));
    }
    const had = old === null ? new Array<string>() : old.allContainers().map<string>(c => c.container.image);
    const containers = pod.allContainers();
    for (let i = 0; i < containers.length; i++) {
      const c = containers[i];
      const image = c.container.image;
      if (!hasPrefix(image, this.registries) && !had.includes(image)) {
        response.withFieldError(FieldError.invalid(c.path.child("image"), Json.of(image), `must come from ${this.registries.join(" or ")}`));
      }
      if (image.endsWith(":latest")) response.withWarning(`container ${c.container.name}: the tag latest may be another image tomorrow`);
    }
    return response;
  }
}
