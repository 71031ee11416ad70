// The nodeaffinity guest is the scheduler's plugin NodeAffinity.

import { CycleState, NodeInfo, NodeInfos, Pod, Scores, Status } from "kubewasm/scheduler";
import { PreferredNodeAffinity, RequiredNodeAffinity } from "kubewasm/scheduling";
import { NodeSelectorTerm } from "kubewasm/api/core";

/** namesOf returns the names of nodes that all fields of a term ask for, null if no field does. */
function namesOf(term: NodeSelectorTerm): string[] | null {
  let names: string[] | null = null;
  const fields = term.matchFields;
  for (let i = 0; i < fields.length; i++) {
    const r = fields[i];
    if (r.key != "metadata.name" || r.operator != "In") continue;
    const these: string[] = [];
    for (let j = 0; j < r.values.length; j++) if (names === null || names.includes(r.values[j])) these.push(r.values[j]);
    names = these;
  }
  return names;
}

@scheduler
class NodeAffinity {
  /** preFilter narrows the nodes down if every term names some. */
  preFilter(state: CycleState, pod: Pod, nodes: NodeInfos): Status | null {
    const affinity = pod.spec.affinity.nodeAffinity;
    if (!affinity.hasRequiredDuringSchedulingIgnoredDuringExecution) {
      return pod.spec.nodeSelector.length == 0 ? Status.skip() : null;
    }
    const terms = affinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms;
    if (terms.length == 0) return null;
    const names: string[] = [];
    for (let i = 0; i < terms.length; i++) {
      const these = namesOf(terms[i]);
      if (these === null) return null;
      for (let j = 0; j < these.length; j++) if (!names.includes(these[j])) names.push(these[j]);
    }
    return names.length == 0 ? Status.unresolvable("pod affinity terms conflict") : Status.only(names);
  }

  filter(state: CycleState, pod: Pod, node: NodeInfo): Status | null {
    let required = state.read<RequiredNodeAffinity>("required");
    if (required === null) {
      required = new RequiredNodeAffinity(pod);
      state.write("required", required);
    }
    return required.matches(node.node) ? null : Status.unresolvable("node(s) didn't match Pod's node affinity/selector");
  }

  preScore(state: CycleState, pod: Pod, nodes: NodeInfos): Status | null {
    const terms = pod.spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution;
    if (terms.length == 0) return Status.skip();
    const preferred = new PreferredNodeAffinity(terms);
    if (preferred.problem.length != 0) return Status.error(preferred.problem);
    state.write("preferred", preferred);
    return null;
  }

  score(state: CycleState, pod: Pod, node: NodeInfo): i64 {
    return state.read<PreferredNodeAffinity>("preferred")!.score(node.node);
  }

  normalizeScore(state: CycleState, pod: Pod, scores: Scores): Status | null {
    let most: i64 = 0;
    for (let i = 0; i < scores.length; i++) most = max(most, scores[i]);
    for (let i = 0; most != 0 && i < scores.length; i++) scores[i] = scores[i] * 100 / most;
    return null;
  }
}
