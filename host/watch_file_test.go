package host_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/host"
)

// watchFile watches a file until the test ends. The function that it returns
// waits for a hint after which the file has a content; "" is no file.
func watchFile(t *testing.T, path string) (wait func(content string)) {
	t.Helper()
	source := host.File(path)
	ctx, cancel := context.WithCancel(t.Context())
	hints, ended := make(chan struct{}, 1000), make(chan error, 1)
	go func() { ended <- source.(host.Watcher).Watch(ctx, func() { hints <- struct{}{} }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	<-hints // It has begun.
	return func(content string) {
		t.Helper()
		tooLong := time.After(time.Minute)
		for {
			select {
			case <-hints:
				if got, _ := source.Fetch(t.Context()); string(got) == content {
					return
				}
			case err := <-ended:
				t.Fatalf("the watch ended: %v", err)
			case <-tooLong:
				got, err := source.Fetch(t.Context())
				t.Fatalf("no hint behind which the content is %q; it is %q, error %v", content, got, err)
			}
		}
	}
}

func TestWatchFile(t *testing.T) {
	type step struct {
		does string
		do   func(t *testing.T)
		want string // The content that a hint must come for.
	}
	tests := map[string]func(dir string) (path string, steps []step){
		"a file is written, replaced, deleted and made again": func(dir string) (string, []step) {
			path := dir + "/zone.wasm"
			return path, []step{
				{"made", func(t *testing.T) { write(t, path, "one") }, "one"},
				{"replaced by a rename", func(t *testing.T) { replace(t, path, "two") }, "two"},
				{"replaced again", func(t *testing.T) { replace(t, path, "three") }, "three"},
				{"written in place", func(t *testing.T) { write(t, path, "four") }, "four"},
				{"deleted", func(t *testing.T) { remove(t, path) }, ""},
				{"made again", func(t *testing.T) { write(t, path, "five") }, "five"},
				{"moved away", func(t *testing.T) { rename(t, path, path+"~") }, ""},
				{"moved back", func(t *testing.T) { rename(t, path+"~", path) }, "five"},
				{"saved by an editor", func(t *testing.T) {
					rename(t, path, path+"~")
					write(t, path, "six")
					remove(t, path+"~")
				}, "six"},
			}
		},
		"a file is written in steps": func(dir string) (string, []step) {
			path := dir + "/zone.wasm"
			return path, []step{
				{"steps", func(t *testing.T) {
					f, err := os.Create(path)
					if err != nil {
						t.Fatal(err)
					}
					for range 100 {
						if _, err := f.WriteString("."); err != nil {
							t.Fatal(err)
						}
					}
					if err := f.Close(); err != nil {
						t.Fatal(err)
					}
				}, "...................................................................................................."},
			}
		},
		"kubelet swaps the data of a ConfigMap": func(dir string) (string, []step) {
			path := dir + "/zone.wasm"
			version := func(t *testing.T, name, content string) {
				mkdir(t, dir+"/"+name)
				write(t, dir+"/"+name+"/zone.wasm", content)
				link(t, name, dir+"/..data_tmp")
				rename(t, dir+"/..data_tmp", dir+"/..data")
			}
			return path, []step{
				{"mounted", func(t *testing.T) {
					version(t, "..1", "one")
					link(t, "..data/zone.wasm", path)
				}, "one"},
				{"updated", func(t *testing.T) {
					version(t, "..2", "two")
					remove(t, dir+"/..1")
				}, "two"},
				{"updated again", func(t *testing.T) {
					version(t, "..3", "three")
					remove(t, dir+"/..2")
				}, "three"},
				{"without the key", func(t *testing.T) { remove(t, dir+"/..3/zone.wasm") }, ""},
				{"with it", func(t *testing.T) { write(t, dir+"/..3/zone.wasm", "four") }, "four"},
			}
		},
		"links lead through other directories": func(dir string) (string, []step) {
			path := dir + "/zone.wasm"
			releases := dir + "/releases"
			return path, []step{
				{"linked", func(t *testing.T) {
					for _, name := range []string{"v1", "v2"} {
						if err := os.MkdirAll(releases+"/"+name, 0o700); err != nil {
							t.Fatal(err)
						}
						write(t, releases+"/"+name+"/zone.wasm", name)
					}
					link(t, "v1", releases+"/current")
					link(t, releases+"/current/../current/zone.wasm", path)
				}, "v1"},
				{"released", func(t *testing.T) {
					link(t, "v2", releases+"/next")
					rename(t, releases+"/next", releases+"/current")
				}, "v2"},
				{"replaced where the link leads", func(t *testing.T) { replace(t, releases+"/v2/zone.wasm", "v2.1") }, "v2.1"},
				{"link replaced by a file", func(t *testing.T) { replace(t, path, "file") }, "file"},
			}
		},
		"the directory comes and goes": func(dir string) (string, []step) {
			path := dir + "/plugins/sched/zone.wasm"
			return path, []step{
				{"made", func(t *testing.T) {
					mkdir(t, dir+"/plugins")
					mkdir(t, dir+"/plugins/sched")
					write(t, path, "one")
				}, "one"},
				{"deleted", func(t *testing.T) { remove(t, dir+"/plugins/sched") }, ""},
				{"made again", func(t *testing.T) {
					mkdir(t, dir+"/plugins/sched")
					write(t, path, "two")
				}, "two"},
				{"deleted and made again at once", func(t *testing.T) {
					remove(t, dir+"/plugins/sched")
					mkdir(t, dir+"/plugins/sched")
					write(t, path, "three")
				}, "three"},
				{"exchanged", func(t *testing.T) {
					mkdir(t, dir+"/plugins/new")
					write(t, dir+"/plugins/new/zone.wasm", "four")
					rename(t, dir+"/plugins/sched", dir+"/plugins/old")
					rename(t, dir+"/plugins/new", dir+"/plugins/sched")
				}, "four"},
				{"replaced in the exchanged one", func(t *testing.T) { replace(t, path, "five") }, "five"},
			}
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			path, steps := test(t.TempDir())
			wait := watchFile(t, path)
			for _, step := range steps {
				t.Log(step.does)
				step.do(t)
				wait(step.want)
			}
		})
	}
}

func TestWatchFileByARelativePath(t *testing.T) {
	t.Chdir(t.TempDir())
	mkdir(t, "plugins")
	wait := watchFile(t, filepath.FromSlash("plugins/../plugins/zone.wasm"))
	write(t, "plugins/zone.wasm", "one")
	wait("one")
}

// TestWatchFileLeavesNothing runs more watches than Linux grants a user at a
// time.
func TestWatchFileLeavesNothing(t *testing.T) {
	path := t.TempDir() + "/zone.wasm"
	for i := range 300 {
		ctx, cancel := context.WithCancel(t.Context())
		if i%3 == 0 {
			cancel()
		}
		err := host.File(path).(host.Watcher).Watch(ctx, cancel)
		cancel()
		if err != nil {
			t.Fatalf("watch %d: %v", i, err)
		}
	}
}

func TestWatchFileThatCannotBeWatched(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may read every directory")
	}
	dir := t.TempDir() + "/closed"
	if err := os.Mkdir(dir, 0o300); err != nil {
		t.Fatal(err)
	}
	err := host.File(dir+"/zone.wasm").(host.Watcher).Watch(t.Context(), func() { t.Error("a hint came") })
	if err == nil {
		t.Error("no error")
	}
}
