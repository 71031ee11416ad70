package statemap

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// op is an operation of a transaction; its answer is a text.
type op func(tx *Tx) string

// TestSerial holds that a transaction that commits has had the answers that it would have now.
func TestSerial(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	edges := []int64{0, 1, -1, 2, -2, 5, -5, math.MaxInt64, math.MinInt64, math.MaxInt64 - 1, math.MinInt64 + 1, math.MaxInt64 / 2, math.MinInt64 / 2, 10, -10}
	num := func() int64 { return edges[rnd.IntN(len(edges))] }
	values := func() []byte {
		switch rnd.IntN(4) {
		case 0:
			return binary.LittleEndian.AppendUint64(nil, uint64(num()))
		case 1:
			return []byte(strings.Repeat("v", rnd.IntN(40_000)))
		}
		return []byte(fmt.Sprint(rnd.IntN(100)))
	}
	committed, conflicts := 0, 0
	for round := range 20_000 {
		keys := []string{"a", "ab", "b", "b\x00", "c"}
		m := New(1000, 10<<20)
		var tx, other Tx
		tx.Begin(m, nil)
		for _, k := range keys {
			if rnd.IntN(2) == 0 {
				if rnd.IntN(2) == 0 {
					tx.Put(k, binary.LittleEndian.AppendUint64(nil, uint64(num())), Any)
				} else {
					tx.Put(k, values(), Any)
				}
			}
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		makeOps := func(n int) (ops []op, names []string) {
			for range n {
				key := keys[rnd.IntN(len(keys))]
				if rnd.IntN(2) == 0 {
					key = "a"
				}
				switch rnd.IntN(9) {
				case 0:
					v := values()
					ops = append(ops, func(tx *Tx) string { return fmt.Sprint(tx.Put(key, v, Any)) })
					names = append(names, fmt.Sprintf("put %q %.20q", key, v))
				case 1:
					ops = append(ops, func(tx *Tx) string { return fmt.Sprint(tx.Put(key, []byte("new"), 0)) })
					names = append(names, fmt.Sprintf("putnew %q", key))
				case 2:
					ops = append(ops, func(tx *Tx) string { return fmt.Sprint(tx.Delete(key, Any)) })
					names = append(names, fmt.Sprintf("delete %q", key))
				case 3:
					ops = append(ops, func(tx *Tx) string {
						if e := tx.Get(key); e != nil {
							return string(e.Value)
						}
						return "none"
					})
					names = append(names, fmt.Sprintf("get %q", key))
				case 4:
					prefix := []string{"", "a", "b", "c", "d"}[rnd.IntN(5)]
					ops = append(ops, func(tx *Tx) string { return strings.Join(listed(tx, prefix), " ") })
					names = append(names, fmt.Sprintf("list %q", prefix))
				default:
					delta, limit := num(), num()
					ops = append(ops, func(tx *Tx) string { return fmt.Sprint(tx.Add(key, delta, limit)) })
					names = append(names, fmt.Sprintf("add %q %d %d", key, delta, limit))
				}
			}
			return
		}
		mine, names := makeOps(1 + rnd.IntN(4))
		others, otherNames := makeOps(1 + rnd.IntN(3))
		start := contents(m)
		tx.Begin(m, nil)
		var got []string
		for _, o := range mine {
			got = append(got, o(&tx))
		}
		other.Begin(m, nil)
		for _, o := range others {
			o(&other)
		}
		if err := other.Commit(); err != nil {
			t.Fatal(err)
		}
		between := contents(m)
		if tx.writes == 0 {
			tx.Drop()
			continue
		}
		if err := tx.Commit(); err != nil {
			conflicts++
			continue
		}
		committed++
		fresh := New(1000, 10<<20)
		tx.Begin(fresh, nil)
		for _, k := range slices.Sorted(maps.Keys(between)) {
			tx.Put(k, []byte(between[k]), Any)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		tx.Begin(fresh, nil)
		var want []string
		for _, o := range mine {
			want = append(want, o(&tx))
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		cut := func(m map[string]string) string {
			s := ""
			for _, k := range slices.Sorted(maps.Keys(m)) {
				v := m[k]
				if len(v) == 8 {
					v = fmt.Sprint(int64(binary.LittleEndian.Uint64([]byte(v))))
				}
				s += fmt.Sprintf("%q=%.30s(%d) ", k, v, len(v))
			}
			return s
		}
		if !slices.Equal(got, want) || !maps.Equal(contents(m), contents(fresh)) {
			t.Fatalf("round %d\nstart %s\nmine %q\nother %q\nbetween %s\ngot %.60q\nwant %.60q\nis %s\nserial %s", round, cut(start), names, otherNames, cut(between), got, want, cut(contents(m)), cut(contents(fresh)))
		}
		if m.bytes != size(contents(m)) || m.entries != len(contents(m)) {
			t.Fatalf("%d entries of %d bytes are counted, want %d of %d", m.entries, m.bytes, len(contents(m)), size(contents(m)))
		}
	}
	if committed < 1000 || conflicts < 1000 {
		t.Errorf("%d commits and %d conflicts prove nothing", committed, conflicts)
	}
}
