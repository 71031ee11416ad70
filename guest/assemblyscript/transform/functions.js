// The functions of the ABI by the methods of a plugin: SPEC.md, section 2.

const cycle = ["cycle", "u64"], pod = ["pod", "u64"], node = ["node", "u64"];
const oldObject = ["oldObject", "u64"], newObject = ["newObject", "u64"], event = ["event", "i32"];

const f = (bit, name, result, ...parameters) => ({ bit, name, result, parameters });

export const functions = {
  scheduler: {
    preEnqueue: [f(0, "preenqueue", "i32", pod)],
    less: [f(1, "queuesort", "i32", ["first", "u64"], ["second", "u64"], ["firstTime", "i64"], ["secondTime", "i64"],
      ["firstAttempt", "i64"], ["secondAttempt", "i64"], ["firstAttempts", "i64"], ["secondAttempts", "i64"])],
    eventsToRegister: [
      f(2, "eventstoregister", "i32"),
      f(3, "queueinghint", "u64", event, pod, oldObject, newObject),
      f(25, "prequeueinghint", "i32", event, oldObject, newObject),
    ],
    preFilter: [f(4, "prefilter", "i32", cycle, pod), f(24, "clonecycle", "i32", cycle, ["from", "u64"])],
    addPod: [f(5, "addpod", "i32", cycle, pod, ["added", "u64"], node)],
    removePod: [f(6, "removepod", "i32", cycle, pod, ["removed", "u64"], node)],
    filter: [f(7, "filter", "i32", cycle, pod, node)],
    postFilter: [f(8, "postfilter", "u64", cycle, pod)],
    potentialVictims: [f(26, "potentialvictims", "i32", cycle, pod, node)],
    preScore: [f(9, "prescore", "i32", cycle, pod)],
    score: [f(10, "score", "u64", cycle, pod, node)],
    normalizeScore: [f(11, "normalizescore", "i32", cycle, pod)],
    reserve: [f(12, "reserve", "i32", cycle, pod)],
    unreserve: [f(13, "unreserve", "void", cycle, pod)],
    permit: [f(14, "permit", "u64", cycle, pod)],
    preBindPreFlight: [f(15, "prebindpreflight", "u64", cycle, pod)],
    preBind: [f(16, "prebind", "i32", cycle, pod)],
    bind: [f(17, "bind", "i32", cycle, pod)],
    postBind: [f(18, "postbind", "void", cycle, pod)],
    signPod: [f(19, "signpod", "i32", pod)],
    podGroupPostFilter: [f(20, "podgrouppostfilter", "i32", cycle)],
    generatePlacements: [f(21, "generateplacements", "i32", cycle)],
    scorePlacement: [f(22, "scoreplacement", "u64", cycle)],
    normalizePlacementScore: [f(23, "normalizeplacementscore", "i32", cycle)],
  },
  admission: {
    validate: [f(32, "validate", "u64")],
    mutate: [f(33, "mutate", "u64")],
    convert: [f(34, "convert", "u64")],
  },
  hook: {
    decide: [f(48, "hook", "i32")],
  },
};
