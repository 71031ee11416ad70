// The named guest, which doc.go two directories above describes.
#include <kubewasm.h>
#include <kubewasm/metrics/metrics.h>

KW_EVENTSTOREGISTER() {
  kw_buf list = {0};
  kw_add_event(&list, Node, KW_ADD);
  kw_add_named_event(&list, "example.com/v1/things", KW_ADD | KW_UPDATE | KW_HINT);
  return kw_set_events(&list);
}

KW_QUEUEINGHINT(event, pod, old, new) {
  (void)event, (void)old;
  kw_str text = kw_event_object(new), want = kw_text("\"for\":\"", meta_ObjectMeta_name(core_Pod_metadata(pod)), "\"");
  for (uint32_t i = 0; i + want.n <= text.n; i++)
    if (kw_equal(((kw_str){text.p + i, want.n}), want)) return kw_queue(true);
  return kw_queue(false);
}

KW_PERMIT(cycle, pod) {
  (void)cycle, (void)pod;
  const kw_str names[] = {KW("shop"), KW("a"), KW("bank"), KW("b")};
  kw_strs pods = {0};
  for (int i = 0; i < 4; i++) kw_strs_add(&kw_call, &pods, names[i]);
  kw_activate(pods);
  return KW_SUCCESS;
}

KW_FILTER(cycle, pod, node) {
  (void)cycle, (void)node;
  const kw_str names[] = {KW("cpu"), KW("memory"), KW("hugepages-2Mi"), KW("example.com/gpu")};
  kw_str reason = kw_qos_class(pod);
  for (int i = 0; i < 4; i++) reason = kw_text(reason, " ", kw_quantity_milli(kw_pod_request(pod, names[i])));
  return kw_unschedulable(reason);
}

KW_SCORE(cycle, pod, node) {
  (void)cycle, (void)pod;
  kw_str found = kw_get_object("metrics.kubewasm.dev/v1/load", "", meta_ObjectMeta_name(core_Node_metadata(node)));
  return kw_scored(found.n ? (int64_t)(100 * metrics_Sample_value(metrics_Sample_of_json(found))) : 50);
}

#define THINGS "example.com/v1/things"

KW_PREBIND(cycle, pod) {
  (void)cycle;
  kw_str name = meta_ObjectMeta_name(core_Pod_metadata(pod));
  if (!kw_get_object(THINGS, "shop", name).n) {
    kw_await_object(THINGS, "shop", name, 600000);
    return kw_because(KW_WAIT, kw_text("no thing ", name));
  }
  const kw_str texts[] = {KW("example.com/a"), KW("\"ä"), KW("example.com/by"), name};
  kw_strs annotations = {0};
  for (int i = 0; i < 4; i++) kw_strs_add(&kw_call, &annotations, texts[i]);
  kw_apply_annotations(THINGS, "shop", name, annotations);
  kw_apply_status(THINGS, "shop", name, "{\"phase\":\"Bound\"}");
  return KW_SUCCESS;
}
