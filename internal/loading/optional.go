package loading

import "context"

// ShadowObserver is a host.Observer that also receives the events of shadows.
type ShadowObserver interface {
	// Shadowed receives the result of a call that a shadow was to repeat. "same" and "different"
	// are results of comparisons. "asked" is a call in which the candidate called a host function
	// that the serving version did not call. "failed" is a call in which only the candidate failed.
	// "dropped" is a call for which there was no room.
	Shadowed(plugin, result string)
}

// SkipObserver is a host.Observer that also receives the calls that an adapter did not make.
type SkipObserver interface {
	// Skipped is called for each call of a function that was not made because the guest had failed
	// before, in the same scheduling cycle or event or for the same object.
	Skipped(plugin, function string)
}

// AccountObserver is a host.Observer that also has the accounts of plugins.
type AccountObserver interface {
	// AccountOf returns the account of a plugin by its label, nil if it has none.
	AccountOf(plugin string) Account
}

// AccountOf returns the account that a host.Observer has for a plugin, nil if there is none.
func AccountOf(observer any, plugin string) Account {
	if o, ok := observer.(AccountObserver); ok {
		return o.AccountOf(plugin)
	}
	return nil
}

// Keeper is a host.Source that has the module even while its origin is unavailable, as the source of
// a registry with a cache does. It is notified of the loaded module, so that a later one that was
// refused does not replace it.
type Keeper interface {
	// Keep records that a fetched module is in use. sha256 is its digest in lower-case hexadecimal.
	Keep(sha256 string)
	// Kept returns the last module of which Keep was notified, in this process or an earlier one,
	// if it is still acceptable. With host.RuntimeConfig.KeepModules, host.Runtime.Load falls back to
	// it from a module that it refuses.
	Kept(ctx context.Context) ([]byte, error)
}

// CompiledSource is a host.Source that may have its module in compiled form as well, as
// host.Precompile returns it. The form is read only where host.ModuleConfig.Compiled grants it. A
// host.File is one: the form lies beside the module, under the name of host.CompiledFile.
type CompiledSource interface {
	// FetchCompiled returns the compiled form of the module for a platform, such as "linux/amd64".
	// A source with several forms returns one whose SHA-256 is among sha256, in hexadecimal. The
	// error is fs.ErrNotExist if there is none. The caller does not change the bytes, and trusts
	// them only by their digest.
	FetchCompiled(ctx context.Context, platform string, sha256 []string) ([]byte, error)
}

// Checker is a host.Source that can be checked before anything is fetched.
type Checker interface {
	// Check returns every mistake of the source, joined. sha256 is the digest of the configuration,
	// empty if it names none. The errors name the source.
	Check(sha256 string) error
}
