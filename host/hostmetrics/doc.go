// Package hostmetrics counts the events of the plugins of a [host.Runtime], for Prometheus.
//
// One [Collector] serves all plugins of a runtime. It is the Observer of their configurations,
// where it counts events, and a collector of a registry, where it reads the state of the plugins
// whenever it is scraped:
//
//	metrics := hostmetrics.New(rt)
//	prometheus.MustRegister(metrics)
//	plugin, err := rt.Load(ctx, host.Config{Name: "zone", Observer: metrics, …})
//
// The events of plugins that have the Collector as their Observer:
//
//	kubewasm_calls_total                   plugin, function, result   calls of guests
//	kubewasm_call_duration_seconds         plugin, function           how long they took
//	kubewasm_call_fuel_total               plugin, function           instructions they executed
//	kubewasm_cache_hits_total              plugin, function           results that the scheduler adapter had, without a call
//	kubewasm_acquire_failures_total        plugin, reason             callers that got no instance
//	kubewasm_instance_restarts_total       plugin, how                instances that began anew
//	kubewasm_calls_skipped_total           plugin, function           calls that were not made after a failure
//	kubewasm_builds_total                  plugin, kind, result       versions that were built, or not
//	kubewasm_build_duration_seconds        plugin                     how long that took
//	kubewasm_shadow_calls_total            plugin, result             calls that a shadow was to repeat
//
// The state of all open plugins of the runtime:
//
//	kubewasm_plugin_info                   plugin, digest, reference  1; the module that serves
//	kubewasm_plugin_instances              plugin                     instances that there are
//	kubewasm_plugin_instances_idle         plugin                     those of them that serve no call
//	kubewasm_plugin_instances_held         plugin                     those that are held from call to call, beside the others
//	kubewasm_plugin_instances_limit        plugin                     how many there may be
//	kubewasm_plugin_waiting_callers        plugin                     callers that wait for one
//	kubewasm_plugin_retired_versions       plugin                     replaced versions that still serve calls
//	kubewasm_plugin_instance_memory_bytes  plugin                     memory of a new instance
//	kubewasm_plugin_log_lines_dropped_total  plugin                   lines of it that were not logged
//	kubewasm_plugin_disabled               plugin                     1 while it is out of service
//	kubewasm_plugin_isolated               plugin                     1 if the guest runs in a child process
//	kubewasm_plugin_isolation_missing      plugin                     1 if it would, if the system could run one
//	kubewasm_plugin_state                  plugin, state              1 for Serving, Stale, Unavailable, Loading or Disabled
//
// The configuration of the component, by [Collector.Declare]:
//
//	kubewasm_config_applied                                           1 while the latest configuration is in service
//	kubewasm_plugin_fails_open             plugin, reason             1 for Monitor, Ignore and KeepLast
//
// Of the process:
//
//	kubewasm_engine_info                                    engine     1 for the engine that runs guests: compiler or interpreter
//	kubewasm_memory_mappings                                          memory mappings, where the system limits them
//	kubewasm_memory_mappings_limit                                    how many there may be
//	kubewasm_log_lines_dropped_total                                  lines that were not logged, those of plugins included
//
// The result of a call is one of
//
//	ok        the guest returned, whatever its answer
//	trap      it did not: it panicked, exited, or executed a trapping instruction
//	fuel      it used up its fuel
//	stack     it used up its stack
//	timeout   Limits.Timeout or the caller's deadline passed
//	canceled  the caller lost interest
//	abi       it broke a rule of the ABI
//
// and that of a build one of
//
//	ok        the version serves
//	digest    the module is not the one that was asked for
//	module    it cannot run here
//	abi       its exports or imports are not those of a guest for this host
//	trap      it trapped while it started
//	status    it refused its configuration
//	other     anything else: the source, a probe, other functions than before
//
// A caller gets no instance because all are in use until its context ends (saturated), the plugin
// is disabled, there is no memory for a new one (memory), the plugin is closed, it could not be
// loaded yet (unavailable), its namespace has no fuel left (quota), or a new instance fails (other).
//
// # Cardinality
//
// No label holds data from a guest. Plugins are named by the configuration, with a Config.Scope as
// scope/name; functions by the ABI. A plugin has one digest at a time. A plugin has 60 series, and
// 30 for each of its functions that was called. Those that run once in each instance, such as
// configure, have none. All results
// of a function appear with its first call, as 0, since rate and increase do not see the step from
// no series to 1. [NewSparse] has about 20 series for a plugin.
//
// The series of a closed plugin are in one more scrape, so that its last calls are seen, and then
// gone. Where several Prometheus servers scrape, that is the scrape of one of them.
package hostmetrics
