package hooks

import (
	"slices"
	"strings"
)

// The lists below name variables that decide which code a process runs, whom it trusts or whom it
// talks to. A pattern of [Grants] covers none of them. The comparison ignores case, since both
// cases are used for proxies.
//
// No list of them is complete: a runtime or a library may read any name. A pattern grants code
// execution if it covers a name that something in the container reads in that way.

// steeringPrefixes are prefixes of such variables.
var steeringPrefixes = []string{
	// Loaders and allocators: ld.so(8), and variables dropped by glibc for a setuid program.
	"LD_", "DYLD_", "_RLD_", "GLIBC_", "GCONV_", "MALLOC_",
	// Shells, terminals and the programs that they start.
	"BASH_", "LESS", "XDG_", "GIT_", "SSH_", "SYSTEMD_", "DBUS_", "TERMINFO",
	// Interpreters, virtual machines and package managers.
	"PYTHON", "PIP_", "CONDA_", "VIRTUAL_ENV", "PERL", "RUBY", "GEM_", "BUNDLE_", "LUA_", "PHP", "COMPOSER_",
	"NODE_", "NPM_", "YARN_", "DENO_", "BUN_", "JAVA_", "_JAVA_", "JDK_", "JVM_", "CATALINA_", "MAVEN_", "GRADLE_",
	"DOTNET_", "CORECLR_", "COR_", "COMPLUS_", "ASPNETCORE_", "NUGET_", "CARGO_", "RUSTC_", "RUSTUP_", "ERL_", "JULIA_", "R_", "TCL", "GUILE_",
	// TLS, certificates, credentials and identities.
	"OPENSSL_", "SSL_", "SSLKEYLOGFILE", "CURL_", "GNUTLS_", "NSS_", "PKCS11_", "P11_KIT_", "KRB5", "GSS_", "SASL_", "PGSSL",
	"AWS_", "AZURE_", "GOOGLE_", "CLOUDSDK_", "VAULT_", "DOCKER_", "KUBE",
	// Drivers and libraries that load others, for graphics, accelerators and clusters.
	"CUDA_INJECTION", "NVTX_INJECTION", "HSA_TOOLS", "ROCPROFILER_", "ROCP_", "VK_", "OCL_ICD_", "LIBGL_", "EGL_", "__EGL_", "__GLX_", "GBM_",
	"OMP_TOOL", "OMPI_", "PMIX_", "UCX_", "FI_PROVIDER", "I_MPI_", "MPICH_", "QT_", "GTK_", "GIO_", "GST_", "MAGICK_",
	"ZE_ENABLE_ALT_DRIVERS", "RDMAV_", "IBV_DRIVERS",
	// Output locations of instrumented programs of any kind.
	"GCOV_", "LLVM_PROFILE_",
}

// steeringSuffixes are suffixes of such variables, for any reader.
var steeringSuffixes = []string{
	"_PROXY", "_OPTS", "_OPTIONS", "_PRELOAD", "_LIBRARY_PATH", "_LIB_PATH", "_PLUGIN", "_PLUGINS", "_PLUGIN_PATH", "_MODULES", "_MODULE_PATH", "_INJECTION64_PATH", "_INJECTION32_PATH",
	"_CA_BUNDLE", "_CA_CERTS", "_CA_FILE", "_CERT_FILE", "_CERT_DIR", "_CONFIG_FILE", "_CONF_FILE", "_STARTUP", "_HOME",
	// Drivers, and caches of compiled code: CUDA_CACHE_PATH, TRITON_CACHE_DIR.
	"_DRIVERS_PATH", "_DRIVER_PATH", "_LAYERS", "_CACHE_PATH", "_CACHE_DIR",
}

// steeringNames are such variables without a common prefix or suffix.
var steeringNames = []string{
	"GETCONF_DIR", "HOSTALIASES", "LOCALDOMAIN", "LOCPATH", "NIS_PATH", "NLSPATH", "RESOLV_HOST_CONF", "RES_OPTIONS", "LIBPATH", "SHLIB_PATH",
	"TMPDIR", "TMP", "TEMP", "TZ", "TZDIR", "RANDFILE",
	"PATH", "HOME", "SHELL", "ENV", "IFS", "PS1", "PS4", "CDPATH", "FPATH", "ZDOTDIR", "SHELLOPTS", "BASHOPTS", "PROMPT_COMMAND", "INPUTRC",
	"EDITOR", "VISUAL", "PAGER", "MANPAGER", "BROWSER", "TERMCAP", "EXINIT", "VIMINIT",
	"CLASSPATH", "GHCRTS", "RUSTFLAGS", "NETRC", "ODBCINI", "ODBCSYSINI",
	"GODEBUG", "GOROOT", "GOPATH", "GOBIN", "GOENV", "GOFLAGS", "GOPROXY", "GONOSUMDB", "GOTOOLCHAIN", "GOTRACEBACK", "GOCOVERDIR",
}

// steersProcess reports whether a variable, by its name or prefix, decides which code a process
// runs, whom it trusts or whom it talks to.
func steersProcess(name string) bool {
	name = strings.ToUpper(name)
	return slices.Contains(steeringNames, name) ||
		slices.ContainsFunc(steeringPrefixes, func(beginning string) bool { return strings.HasPrefix(name, beginning) }) ||
		slices.ContainsFunc(steeringSuffixes, func(end string) bool { return strings.HasSuffix(name, end) })
}
