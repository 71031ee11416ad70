package hooks

import (
	"slices"
	"strings"
	"testing"
)

// steering are variables by which somebody runs code, is trusted or listens, as the manuals of
// their readers have them.
var steering = []string{
	"LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "GLIBC_TUNABLES", "GCONV_PATH", "MALLOC_CONF", "DYLD_INSERT_LIBRARIES",
	"BASH_ENV", "ENV", "PATH", "HOME", "IFS", "PROMPT_COMMAND", "LESSOPEN", "PAGER", "ZDOTDIR", "GIT_SSH_COMMAND",
	"PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME", "PERL5OPT", "PERL5LIB", "RUBYOPT", "RUBYLIB", "LUA_INIT", "LUA_PATH", "PHPRC", "PHP_INI_SCAN_DIR",
	"NODE_OPTIONS", "NODE_PATH", "NODE_EXTRA_CA_CERTS", "NODE_TLS_REJECT_UNAUTHORIZED", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "ES_JAVA_OPTS", "CATALINA_OPTS", "CLASSPATH",
	"DOTNET_STARTUP_HOOKS", "DOTNET_ADDITIONAL_DEPS", "CORECLR_PROFILER_PATH", "COR_PROFILER", "COMPlus_ReadyToRun", "ASPNETCORE_HOSTINGSTARTUPASSEMBLIES",
	"GODEBUG", "GOFLAGS", "GOTOOLCHAIN", "RUSTC_WRAPPER", "CARGO_HOME", "ERL_FLAGS", "JULIA_LOAD_PATH", "R_PROFILE", "GHCRTS",
	"OPENSSL_CONF", "OPENSSL_MODULES", "OPENSSL_ENGINES", "SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "AWS_CA_BUNDLE", "AWS_CONFIG_FILE", "KRB5_CONFIG", "GOOGLE_APPLICATION_CREDENTIALS", "KUBECONFIG", "KUBERNETES_SERVICE_HOST",
	"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "grpc_proxy", "RES_OPTIONS", "HOSTALIASES",
	"CUDA_INJECTION64_PATH", "CUDA_INJECTION32_PATH", "NVTX_INJECTION64_PATH", "VK_LAYER_PATH", "VK_ICD_FILENAMES", "OCL_ICD_VENDORS", "LIBGL_DRIVERS_PATH", "HSA_TOOLS_LIB", "OMP_TOOL_LIBRARIES", "NCCL_NET_PLUGIN", "NCCL_TUNER_PLUGIN", "UCX_MODULE_DIR", "OMPI_MCA_mca_base_component_path", "FI_PROVIDER_PATH", "ASAN_OPTIONS", "GTK_MODULES", "QT_PLUGIN_PATH",
	"CUDA_CACHE_PATH", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "NUMBA_CACHE_DIR", "LIBVA_DRIVERS_PATH", "VDPAU_DRIVER_PATH", "OPENCL_LAYERS", "ZE_ENABLE_ALT_DRIVERS", "RDMAV_DRIVERS", "NCCL_CONF_FILE", "GCOV_PREFIX", "LLVM_PROFILE_FILE",
}

// TestPatternsGrantNoCode holds that the shortest and the longest pattern that may be granted
// cover no variable that steers a process, and that its own name grants each.
func TestPatternsGrantNoCode(t *testing.T) {
	for _, name := range steering {
		for _, n := range []int{1, len(name) / 2, len(name) - 1, len(name)} {
			g := &Grants{Env: []string{name[:n] + "*"}}
			if reason := g.env(name); reason == "" {
				t.Errorf("%s is granted by %s", name, g.Env)
			}
		}
		g := &Grants{Env: []string{name}}
		if reason := g.env(name); reason != "" || g.validate() != nil {
			t.Errorf("%s is not granted by its own name: %s, %v", name, reason, g.validate())
		}
		if wild := (&Grants{Env: []string{name + "*"}}); wild.validate() == nil {
			t.Errorf("the pattern %s* stands for such a variable only, and is accepted", name)
		}
	}
}

// TestPatternsGrantOrdinaryVariables holds that the lists are for what they are for.
func TestPatternsGrantOrdinaryVariables(t *testing.T) {
	for _, name := range []string{
		"NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_MEMORY_LIMIT", "ROCR_VISIBLE_DEVICES", "NCCL_IB_HCA", "NCCL_DEBUG", "OMP_NUM_THREADS", "GOMAXPROCS", "GOMEMLIMIT",
		"APP_MODE", "LOG_LEVEL", "SHOP_DATABASE", "MEMORY_LIMIT", "PODNAME", "TOPOLOGY_ZONE",
	} {
		for n := 1; n <= len(name); n++ {
			if g := (&Grants{Env: []string{name[:n] + "*"}}); g.validate() == nil && g.env(name) != "" {
				t.Errorf("%s is not granted by %s", name, g.Env)
			}
		}
	}
}

func TestListsOfSteeringVariables(t *testing.T) {
	for _, list := range [][]string{steeringPrefixes, steeringSuffixes, steeringNames} {
		for i, name := range list {
			if name != strings.ToUpper(name) || slices.Contains(list[:i], name) {
				t.Errorf("%s is not in upper case, or there twice", name)
			}
		}
	}
}
