// Package profile describes the fuel that the calls of a guest used: by function and by call path,
// exactly. A [host.Profiler] collects a profile while a plugin runs.
//
// A profile has two values for each call path: fuel, the fuel of the last function of the path
// itself, and bytes, by which it let the memory grow. The sum of the fuel is exactly that of the
// calls. The host's charge for a host function is a separate path, which ends at that function.
//
// [Profile.Write] writes the format of pprof:
//
//	go tool pprof -http :8080 fuel.pb.gz
//
// # Functions
//
// Names come from the module: for guests of Go from the runtime's own table, with file and line,
// even if the module is stripped; otherwise from its name section, with file and line from DWARF if
// there is any. A function without a name is called by its index.
//
// # Call paths of Go
//
// A function of Go that has to wait, or whose stack has to move, returns to a loop of Go's runtime,
// which calls it again later. It continues in its first call path. A goroutine begins at that loop
// (wasm_pc_f_loop). A function that was called before the profile began, by a goroutine that had
// waited meanwhile, begins there, too.
//
// # Limits
//
// Paths longer than 256 functions lose some in their middle. Beyond 262,144 paths, a new one
// is cut to its last function, below "(more call paths)". The sums by function stay exact.
//
// [host.Profiler]: https://pkg.go.dev/github.com/kubewasm/kubewasm/host#Profiler
package profile
