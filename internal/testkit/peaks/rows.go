package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/recording"
	"github.com/kubewasm/kubewasm/internal/serviceschema"
)

// rows are the inputs, in the order of the points.
var rows = []row{
	{0, "nothing: a small module", load(function(1, 1, 0, nothing))},
	{10, "10,000 operands below 4,000 branches", load(function(10_000, 4_000, 0, branch))},
	{10, "4,000 operands below 4,000 loops", load(function(4_000, 4_000, 0, loop))},
	{10, "2,000 globals and 2,000 calls", load(function(1, 2_000, 2_000, call))},
	{11, "schema with 40 nested public imports", schema(40)},
	{12, "tokens of 2,000 repositories, 125 KB each", tokens(2_000, 125<<10)},
	{12, "tokens of 16,000 repositories, 16 KB each", tokens(16_000, 16<<10-1)},
	{13, "8 questions about 64 signatures of 1 MiB each", signatures(8, 1<<20)},
	{13, "8 questions about 64 signatures of 64 KiB each", signatures(8, 64<<10)},
	{14, "500 questions of 8 MiB about waiting Pods in one Filter", questions},
	{15, "24 reviews of 24 MB for a shadow that never decides", shadowed(24, 24<<20)},
	{16, "100 reviews of 1 MB, 20 at a time, for a policy that monitors and never decides", monitored(100, 20, 1<<20)},
	{17, "recording of 32 MB, 33 million empty events", ofOneCall(32 << 20)},
	{18, "lines of 16 KB in 5,000 Filters", logs(5_000)},
	{19, "15 different modules of 0.4 MB in a process with 500 mappings left", many(15, 800, 500)},
}

// load loads a module.
func load(module []byte) func(context.Context, string) error {
	return func(ctx context.Context, _ string) error {
		rt, err := host.NewRuntime(host.RuntimeConfig{})
		if err != nil {
			return err
		}
		defer rt.Close(ctx)
		_, err = rt.Load(ctx, host.Config{Name: "hostile", Module: host.ModuleConfig{Bytes: module}}, host.Adapter{Kind: abi.KindScheduler})
		return err
	}
}

// many loads modules that differ, of so many functions, into a process that may have few more
// memory mappings, and tells how many it has in the end.
func many(modules, functions, left int) func(context.Context, string) error {
	return func(ctx context.Context, dir string) error {
		rt, err := host.NewRuntime(host.RuntimeConfig{CacheDir: filepath.Join(dir, "cache")})
		if err != nil {
			return err
		}
		defer rt.Close(ctx)
		if err := mapUpTo(left); err != nil {
			return err
		}
		for i := range modules {
			module := copies(functions, 10+i, 50, 0, branch)
			if _, err := rt.Load(ctx, host.Config{Name: fmt.Sprint(i), Module: host.ModuleConfig{Bytes: module}}, host.Adapter{Kind: abi.KindScheduler}); err != nil {
				return fmt.Errorf("module %d: %w", i, err)
			}
		}
		used, err := mappings()
		if err != nil {
			return err
		}
		return note(fmt.Sprintf("accepted with %d mappings", used))
	}
}

// The code that a function repeats.
var (
	nothing = []byte{0x01}                                           // nop
	branch  = []byte{0x02, 0x40, 0x20, 0x01, 0x50, 0x0d, 0x00, 0x0b} // block; local.get 1; i64.eqz; br_if 0; end
	loop    = []byte{0x03, 0x40, 0x20, 0x01, 0x50, 0x0d, 0x00, 0x0b}
	call    = []byte{0x10, 0x01, 0x1a} // the marker of the ABI; drop
)

// function returns a module for this host with a function that has operands below code that is
// repeated, and with globals that can change.
func function(operands, times, globals int, code []byte) []byte {
	return copies(1, operands, times, globals, code)
}

// copies returns a module like that of [function] with several such functions.
func copies(n, operands, times, globals int, code []byte) []byte {
	body := []byte{0x00} // No locals.
	for i := range operands {
		body = append(append(body, 0x20, 0x00, 0x42), sleb(int64(i*7919+1))...)
		body = append(body, 0x7c) // local.get 0; i64.const; i64.add
	}
	body = append(body, bytes.Repeat(code, times)...)
	body = append(body, bytes.Repeat([]byte{0x7c}, operands-1)...)
	body = append(body, 0x0b) // The sum is returned, so that the compiler drops none of it.
	section := func(out []byte, id byte, content ...[]byte) []byte {
		all := bytes.Join(content, nil)
		return append(append(append(out, id), uleb(len(all))...), all...)
	}
	entry := func(content []byte) []byte { return append(uleb(len(content)), content...) }
	name := func(s string) []byte { return append(uleb(len(s)), s...) }
	out := []byte("\x00asm\x01\x00\x00\x00")
	out = section(out, 1, uleb(3), []byte{0x60, 2, 0x7e, 0x7e, 1, 0x7e, 0x60, 0, 1, 0x7e, 0x60, 3, 0x7e, 0x7e, 0x7e, 1, 0x7f})
	out = section(out, 3, uleb(n+2), []byte{0, 1, 2}, make([]byte, n-1)) // All others are of the first type.
	out = section(out, 5, []byte{1, 0, 1})
	out = section(out, 6, uleb(globals), bytes.Repeat([]byte{0x7e, 1, 0x42, 0, 0x0b}, globals))
	out = section(out, 7, uleb(4),
		name("memory"), []byte{2, 0}, name("hostile"), []byte{0, 0}, name(abi.Marker), []byte{0, 1}, name("filter"), []byte{0, 2})
	return section(out, 10, uleb(n+2), entry(body), entry([]byte{0x00, 0x42, 0x80, 0x01, 0x0b}), entry([]byte{0x00, 0x41, 0x00, 0x0b}),
		bytes.Repeat(entry(body), n-1))
}

func uleb(n int) []byte { return binary.AppendUvarint(nil, uint64(n)) }

func sleb(v int64) (out []byte) {
	for {
		b := byte(v & 0x7f)
		if v >>= 7; v == 0 && b&0x40 == 0 || v == -1 && b&0x40 != 0 {
			return append(out, b)
		}
		out = append(out, b|0x80)
	}
}

// schema reads a schema in which two files import the two before them publicly, and so on.
func schema(depth int) func(context.Context, string) error {
	return func(context.Context, string) error {
		set := &descriptorpb.FileDescriptorSet{}
		for k := range depth {
			for _, side := range []string{"a", "b"} {
				f := &descriptorpb.FileDescriptorProto{Name: proto.String(fmt.Sprint(side, k)), Syntax: proto.String("proto3")}
				if k > 0 {
					f.Dependency, f.PublicDependency = []string{fmt.Sprint("a", k-1), fmt.Sprint("b", k-1)}, []int32{0, 1}
				}
				set.File = append(set.File, f)
			}
		}
		section, err := proto.Marshal(set)
		if err != nil {
			return err
		}
		_, err = serviceschema.Parse(section)
		return err
	}
}

// ofOneCall reads a recording of one call with events without content.
func ofOneCall(events int) func(context.Context, string) error {
	return func(_ context.Context, dir string) error {
		frame := func(out []byte, kind byte, payload []byte) []byte {
			body := append([]byte{kind}, payload...)
			out = binary.LittleEndian.AppendUint32(out, uint32(len(body)))
			out = binary.LittleEndian.AppendUint32(out, crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
			return append(out, body...)
		}
		version, err := json.Marshal(&recording.Version{Plugin: "p"})
		if err != nil {
			return err
		}
		file := filepath.Join(dir, "1.kwrec")
		for format := 2; format > 0; format-- { // Earlier builds know the earlier one alone.
			out := frame([]byte("kubewasm recording\n"), 'H', fmt.Appendf(nil, `{"format":%d,"run":"r"}`, format))
			out = frame(out, 'V', append([]byte{1}, version...))
			of := append([]byte{1, 1, 0, 0, 0, 0, 0, 0}, bytes.Repeat([]byte{byte(recording.Confidential)}, events)...)
			out = frame(out, 'C', append(of, byte(recording.Confidential)+1, 0, 0, 0, 0, 0, 0)) // The end of the call.
			if err := os.WriteFile(file, out, 0o600); err != nil {
				return err
			}
			r, err := recording.Open(file)
			if err != nil {
				return err
			}
			for _, s := range r.Sequences() {
				for _, err := range s.Calls() {
					return err
				}
			}
		}
		return errors.New("no call was read")
	}
}
