// The guest writes what it reads of a CronTab: see readers_test.go.
#include "crontab.h"

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

KW_VALIDATE(request) {
  (void)request;
  crontab_CronTab tab = {kw_object_view()};
  crontab_CronTabSpec s = crontab_CronTab_spec(tab);
  crontab_CronTabStatus status = crontab_CronTab_status(tab);
  text = (kw_buf){0};
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
