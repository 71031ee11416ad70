// The guest writes what it reads of a CronTab, and of a StellarNode: see readers_test.go.
#include "crontab.h"
#include "stellarnode.h"

static kw_buf text;

static void line(const char *name, kw_str value) {
  kw_put(&text, kw_text(name, "=", value, "\n"));
}

static void number(const char *name, bool has, int64_t value) {
  line(name, has ? kw_s((long long)value) : KW("-"));
}

static void read_containers(crontab_CronTabSpec s) {
  KW_EACH(crontab_CronTabSpecContainers, c, crontab_CronTabSpec_containers(s)) {
    line("image", crontab_CronTabSpecContainers_image(c));
    KW_EACH(crontab_CronTabSpecContainersEnv, e, crontab_CronTabSpecContainers_env(c)) {
      line("env", crontab_CronTabSpecContainersEnv_name(e));
      line("value", crontab_CronTabSpecContainersEnv_has_value(e) ? crontab_CronTabSpecContainersEnv_value(e) : KW("-"));
    }
  }
}

static void read_maps(crontab_CronTabSpec s) {
  for (int i = 0; i < 3; i++) {
    kw_str key = i == 0 ? KW("a") : i == 1 ? KW("\xc3\xa9\"") : KW("none");
    kw_intstr limit;
    crontab_CronTabSpecQueues queue;
    line("label", kw_value(crontab_CronTabSpec_labels(s), key));
    if (!kw_lookup_intstr(crontab_CronTabSpec_limits(s), key, &limit)) line("limit", KW("-"));
    else line("limit", limit.is_string ? limit.string : kw_s(limit.number));
    bool found = kw_lookup_message(crontab_CronTabSpec_queues(s), key, &queue.v);
    number("queue", found && crontab_CronTabSpecQueues_has_length(queue), crontab_CronTabSpecQueues_length(queue));
  }
}

static kw_result read_node(stellarnode_StellarNode node) {
  stellarnode_StellarNodeSpec s = stellarnode_StellarNode_spec(node);
  stellarnode_StellarNodeSpecStorage storage = stellarnode_StellarNodeSpec_storage(s);
  stellarnode_StellarNodeSpecValidatorConfig validator = stellarnode_StellarNodeSpec_validatorConfig(s);
  stellarnode_StellarNodeSpecHorizonConfig horizon = stellarnode_StellarNodeSpec_horizonConfig(s);
  stellarnode_StellarNodeSpecSorobanConfig soroban = stellarnode_StellarNodeSpec_sorobanConfig(s);
  stellarnode_StellarNodeStatus status = stellarnode_StellarNode_status(node);
  line("name", meta_ObjectMeta_name(stellarnode_StellarNode_metadata(node)));
  if (kw_equal(stellarnode_StellarNodeSpec_nodeType(s), stellarnode_StellarNodeSpecNodeTypeValidator)) line("validates", KW("yes"));
  line("network", stellarnode_StellarNodeSpec_network(s));
  line("version", stellarnode_StellarNodeSpec_version(s));
  line("image", stellarnode_StellarNodeSpec_has_image(s) ? stellarnode_StellarNodeSpec_image(s) : KW("-"));
  number("replicas", stellarnode_StellarNodeSpec_has_replicas(s), stellarnode_StellarNodeSpec_replicas(s));
  number("suspended", stellarnode_StellarNodeSpec_has_suspended(s), stellarnode_StellarNodeSpec_suspended(s));
  kw_intstr cpu;
  if (!kw_lookup_intstr(stellarnode_StellarNodeSpecResources_requests(stellarnode_StellarNodeSpec_resources(s)), KW("cpu"), &cpu)) line("cpu", KW("-"));
  else line("cpu", cpu.is_string ? cpu.string : kw_s(cpu.number));
  line("size", stellarnode_StellarNodeSpecStorage_size(storage));
  if (kw_equal(stellarnode_StellarNodeSpecStorage_retentionPolicy(storage), stellarnode_StellarNodeSpecStorageRetentionPolicyDelete)) line("deletes", KW("yes"));
  line("seed", stellarnode_StellarNodeSpecValidatorConfig_seedSecretRef(validator));
  number("archives", stellarnode_StellarNodeSpecValidatorConfig_has_enableHistoryArchive(validator), stellarnode_StellarNodeSpecValidatorConfig_enableHistoryArchive(validator));
  KW_EACH_STRING(url, stellarnode_StellarNodeSpecValidatorConfig_historyArchiveUrls(validator)) line("url", url);
  number("workers", stellarnode_StellarNodeSpecHorizonConfig_has_ingestWorkers(horizon), stellarnode_StellarNodeSpecHorizonConfig_ingestWorkers(horizon));
  number("events", stellarnode_StellarNodeSpecSorobanConfig_has_maxEventsPerRequest(soroban), stellarnode_StellarNodeSpecSorobanConfig_maxEventsPerRequest(soroban));
  line("phase", stellarnode_StellarNodeStatus_phase(status));
  number("ready", stellarnode_StellarNodeStatus_has_readyReplicas(status), stellarnode_StellarNodeStatus_readyReplicas(status));
  return kw_deny(kw_bytes(&text));
}

KW_VALIDATE(request) {
  (void)request;
  crontab_CronTab tab = {kw_object_view()};
  crontab_CronTabSpec s = crontab_CronTab_spec(tab);
  crontab_CronTabStatus status = crontab_CronTab_status(tab);
  text = (kw_buf){0};
  if (kw_equal(crontab_CronTab_kind(tab), KW("StellarNode"))) return read_node((stellarnode_StellarNode){kw_object_view()});
  line("name", meta_ObjectMeta_name(crontab_CronTab_metadata(tab)));
  line("app", kw_value(meta_ObjectMeta_labels(crontab_CronTab_metadata(tab)), "app"));
  line("schedule", crontab_CronTabSpec_schedule(s));
  number("replicas", true, crontab_CronTabSpec_replicas(s));
  number("deadline", crontab_CronTabSpec_has_deadline(s), crontab_CronTabSpec_deadline(s));
  number("threshold", crontab_CronTabSpec_has_threshold(s), (int64_t)(crontab_CronTabSpec_threshold(s) * 1000));
  number("suspend", crontab_CronTabSpec_has_suspend(s), crontab_CronTabSpec_suspend(s));
  line("policy", crontab_CronTabSpec_has_policy(s) ? crontab_CronTabSpec_policy(s) : KW("-"));
  if (kw_equal(crontab_CronTabSpec_policy(s), crontab_CronTabSpecPolicyForbid)) line("forbid", KW("yes"));
  kw_time since = crontab_CronTabSpec_since(s);
  number("since", crontab_CronTabSpec_has_since(s), since.seconds);
  number("nanos", crontab_CronTabSpec_has_since(s), since.nanos);
  line("secret", crontab_CronTabSpec_secret(s));
  kw_intstr port = crontab_CronTabSpec_port(s);
  line("port", !crontab_CronTabSpec_has_port(s) ? KW("-") : port.is_string ? port.string : kw_s(port.number));
  number("memory", crontab_CronTabSpec_has_memory(s), kw_quantity_milli(crontab_CronTabSpec_memory(s)));
  KW_EACH_STRING(arg, crontab_CronTabSpec_args(s)) line("arg", arg);
  KW_EACH_NUMBER(code, crontab_CronTabSpec_codes(s)) number("code", true, (int64_t)code);
  kw_list rows = crontab_CronTabSpec_matrix(s);
  for (kw_str key, row; kw_next_raw(&rows, &key, &row);) line("row", row);
  read_maps(s);
  read_containers(s);
  line("template", crontab_CronTabSpec_template(s));
  line("anything", crontab_CronTabSpec_anything(s));
  number("active", crontab_CronTabStatus_has_active(status), crontab_CronTabStatus_active(status));
  return kw_deny(kw_bytes(&text));
}
