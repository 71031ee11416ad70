package statemap

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// contents returns the entries of a map as text.
func contents(m *Map) map[string]string {
	all := map[string]string{}
	for _, e := range m.All() {
		all[e.Key] = string(e.Value)
	}
	return all
}

// listed returns the keys and values that a transaction lists, in pages.
func listed(t *Tx, prefix string) (pairs []string) {
	for after := ""; ; {
		page := t.List(nil, prefix, after)
		if len(page) == 0 {
			return pairs
		}
		for len(page) > 0 {
			k, v := binary.LittleEndian.Uint32(page), binary.LittleEndian.Uint32(page[4:])
			page = page[16:]
			after = string(page[:k])
			pairs = append(pairs, after+"="+string(page[k:k+v]))
			page = page[k+v:]
		}
	}
}

// TestModel compares random transactions with a map of Go.
func TestModel(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	m := New(300, 1<<20)
	model := map[string]string{}
	for n := range 1000 {
		var tx Tx
		tx.Begin(m, nil)
		// A reader of the old state, beside the transaction and after its end.
		var old Tx
		before := maps.Clone(model)
		if n%2 == 0 {
			old.Begin(m, nil)
		}
		is := maps.Clone(model)
		for range rnd.IntN(20) {
			key := fmt.Sprintf("%c%03d", 'a'+rnd.IntN(3), rnd.IntN(150))
			switch rnd.IntN(5) {
			case 0:
				value, _, want := strings.Repeat("x", rnd.IntN(3000)), 0, Done
				if _, ok := is[key]; !ok && len(is) == 300 {
					want = Full
				}
				got := tx.Put(key, []byte(value), Any)
				if sum := size(is) - len(is[key]) + len(value); want == Done && sum > 1<<20-2000 {
					want = got // Near the limit of bytes.
				}
				if got != want {
					t.Fatalf("put of %q is %d, want %d", key, got, want)
				}
				if got == Done {
					is[key] = value
				}
			case 1:
				_, ok := is[key]
				if got := tx.Delete(key, Any); (got == Done) != ok {
					t.Fatalf("delete of %q is %d", key, got)
				}
				delete(is, key)
			case 2:
				var got string
				e := tx.Get(key)
				if e != nil {
					got = string(e.Value)
				}
				if want, ok := is[key]; got != want || ok != (e != nil) {
					t.Fatalf("get of %q is %q, want %q", key, got, want)
				}
			case 3:
				if len(is[key]) == 8 || is[key] == "" && len(is) < 300 {
					if _, ok := is[key]; !ok || len(is[key]) == 8 {
						n := int64(0)
						if ok {
							n = int64(binary.LittleEndian.Uint64([]byte(is[key])))
						}
						delta, limit := int64(rnd.IntN(9)-4), int64(rnd.IntN(20)-10)
						want := Done
						if delta >= 0 && n+delta > limit || delta < 0 && n+delta < limit {
							want = Refused
						}
						if got := tx.Add(key, delta, limit); got != want && got != Full {
							t.Fatalf("add to %q is %d, want %d", key, got, want)
						} else if got == Done {
							is[key] = string(binary.LittleEndian.AppendUint64(nil, uint64(n+delta)))
						}
					}
				}
			case 4:
				prefix := string(rune('a' + rnd.IntN(4)))
				var want []string
				for _, k := range slices.Sorted(maps.Keys(is)) {
					if strings.HasPrefix(k, prefix) {
						want = append(want, k+"="+is[k])
					}
				}
				if diff := cmp.Diff(want, listed(&tx, prefix)); diff != "" {
					t.Fatalf("list of %q (-want +got):\n%s", prefix, diff)
				}
			}
		}
		if rnd.IntN(3) == 0 {
			tx.Drop()
		} else {
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			model = is
		}
		if n%2 == 0 {
			if got := len(listed(&old, "")); got != len(before) {
				t.Fatalf("a reader of the old state sees %d entries, want %d", got, len(before))
			}
			old.Drop()
		}
		if n%50 == 0 {
			if diff := cmp.Diff(model, contents(m)); diff != "" {
				t.Fatalf("contents (-want +got):\n%s", diff)
			}
			if m.Len() != len(model) || m.bytes != size(model) {
				t.Fatalf("%d entries of %d bytes, want %d of %d", m.Len(), m.bytes, len(model), size(model))
			}
		}
	}
	if m.open != 0 {
		t.Errorf("%d transactions are open", m.open)
	}
}

func size(m map[string]string) (n int) {
	for k, v := range m {
		n += len(k) + len(v)
	}
	return n
}

// TestConflicts holds which transactions conflict with one that commits meanwhile.
func TestConflicts(t *testing.T) {
	num := func(n int64) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(n)) }
	for name, test := range map[string]struct {
		mine, other func(*Tx)
		conflict    bool
		want        map[string]string
	}{
		"two counters":                         {func(t *Tx) { t.Add("n", 1, 9) }, func(t *Tx) { t.Add("n", 2, 9) }, false, map[string]string{"n": string(num(6)), "v": "old"}},
		"a counter that is full by now":        {func(t *Tx) { t.Add("n", 1, 5) }, func(t *Tx) { t.Add("n", 2, 9) }, true, nil},
		"a counter that has room by now":       {func(t *Tx) { t.Add("n", 7, 9); t.Put("w", nil, Any) }, func(t *Tx) { t.Add("n", -3, 0) }, true, nil},
		"a counter taken back":                 {func(t *Tx) { t.Add("n", -1, math.MinInt64) }, func(t *Tx) { t.Add("n", -2, 0) }, false, map[string]string{"n": string(num(0)), "v": "old"}},
		"a counter added to twice":             {func(t *Tx) { t.Add("n", 2, 9); t.Add("n", -1, 0) }, func(t *Tx) { t.Add("n", 1, 9) }, false, map[string]string{"n": string(num(5)), "v": "old"}},
		"a counter that is read":               {func(t *Tx) { t.Add("n", 1, 9); t.Get("n") }, func(t *Tx) { t.Add("n", 1, 9) }, true, nil},
		"a counter that is a text by now":      {func(t *Tx) { t.Add("n", 1, 9) }, func(t *Tx) { t.Put("n", nil, Any) }, true, nil},
		"a new counter of both":                {func(t *Tx) { t.Add("m", 1, 9) }, func(t *Tx) { t.Add("m", 1, 9) }, false, map[string]string{"n": string(num(3)), "m": string(num(2)), "v": "old"}},
		"blind writes: the last counts":        {func(t *Tx) { t.Put("v", []byte("mine"), Any) }, func(t *Tx) { t.Put("v", []byte("other"), Any) }, false, map[string]string{"n": string(num(3)), "v": "mine"}},
		"a write of what was read":             {func(t *Tx) { t.Get("v"); t.Put("v", []byte("mine"), Any) }, func(t *Tx) { t.Put("v", []byte("other"), Any) }, true, nil},
		"a write of another entry":             {func(t *Tx) { t.Get("v"); t.Put("w", []byte("mine"), Any) }, func(t *Tx) { t.Add("n", 1, 9) }, false, map[string]string{"n": string(num(4)), "v": "old", "w": "mine"}},
		"both make an entry":                   {func(t *Tx) { t.Put("w", nil, 0) }, func(t *Tx) { t.Put("w", nil, 0) }, true, nil},
		"a read alone":                         {func(t *Tx) { t.Get("v") }, func(t *Tx) { t.Put("v", nil, Any) }, false, map[string]string{"n": string(num(3)), "v": ""}},
		"an entry in a list":                   {func(t *Tx) { t.List(nil, "v", ""); t.Put("w", nil, Any) }, func(t *Tx) { t.Put("v1", nil, Any) }, true, nil},
		"an entry beside a list":               {func(t *Tx) { t.List(nil, "v", ""); t.Put("w", nil, Any) }, func(t *Tx) { t.Put("u", nil, Any) }, false, map[string]string{"n": string(num(3)), "v": "old", "w": "", "u": ""}},
		"both take the last room":              {func(t *Tx) { t.Put("x", nil, Any) }, func(t *Tx) { t.Put("w", nil, Any); t.Put("y", nil, Any) }, true, nil},
		"a deleted entry that another deletes": {func(t *Tx) { t.Delete("v", Any) }, func(t *Tx) { t.Delete("v", Any) }, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			m := New(4, 1<<10)
			var tx, other Tx
			tx.Begin(m, nil)
			tx.Put("n", num(3), Any)
			tx.Put("v", []byte("old"), Any)
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			tx.Begin(m, nil)
			other.Begin(m, nil)
			test.mine(&tx)
			test.other(&other)
			if err := other.Commit(); err != nil {
				t.Fatal(err)
			}
			err := tx.Commit()
			if (err != nil) != test.conflict {
				t.Fatalf("Commit = %v, want a conflict: %t", err, test.conflict)
			}
			if err == nil {
				if diff := cmp.Diff(test.want, contents(m)); diff != "" {
					t.Errorf("contents (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// TestRepetition holds that a transaction reads what the record of another one has.
func TestRepetition(t *testing.T) {
	m := New(100, 1<<10)
	var tx Tx
	put := func(key, value string) {
		tx.Begin(m, nil)
		tx.Put(key, []byte(value), Any)
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	put("a1", "1")
	put("a2", "2")
	put("b", "3")
	tx.Begin(m, nil)
	first := []string{strings.Join(listed(&tx, "a"), " "), string(tx.Get("b").Value), fmt.Sprint(tx.Add("c", 1, 1))}
	record := tx.Record()
	tx.Drop()
	put("a1", "9")
	put("a15", "9")
	put("b", "9")
	put("c", "12345678")
	tx.Begin(m, record)
	again := []string{strings.Join(listed(&tx, "a"), " "), string(tx.Get("b").Value), fmt.Sprint(tx.Add("c", 1, 1))}
	if diff := cmp.Diff(first, again); diff != "" {
		t.Errorf("the repetition differs (-first +again):\n%s", diff)
	}
	if tx.Get("a15") != nil || string(tx.Get("a1").Value) != "1" {
		t.Error("a key of the list is read as it is now")
	}
	if e := tx.Get("a2"); string(e.Value) != "2" {
		t.Error(e)
	}
	tx.Drop()
	if record.Bytes() == 0 {
		t.Error("the record has no size")
	}
}

// TestHammer has goroutines move units between counters, and take units of a bounded one: the sum
// stays, no counter passes its limit, and each reader sees the sum.
func TestHammer(t *testing.T) {
	m := New(10_000, 1<<20)
	const quota, accounts = 5, 300
	var all sync.WaitGroup
	conflicts := make([]int, 8)
	for g := range 8 {
		all.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(g), 1))
			var tx Tx
			for n := range 2000 {
				if n%10 == 0 {
					sum := int64(0)
					tx.Begin(m, nil)
					for _, e := range listedEntries(&tx, "account/") {
						sum += e
					}
					tx.Drop()
					if sum != 0 {
						t.Errorf("a reader sees the sum %d", sum)
						return
					}
				}
				for {
					tx.Begin(m, nil)
					from, to := fmt.Sprintf("account/%03d", rnd.IntN(accounts)), fmt.Sprintf("account/%03d", rnd.IntN(accounts))
					tx.Add(from, -1, math.MinInt64)
					tx.Add(to, 1, math.MaxInt64)
					mine := fmt.Sprintf("holds/%d", g)
					if tx.Get(mine) == nil {
						if tx.Add("quota", 1, quota) == Done {
							tx.Put(mine, nil, 0)
						}
					} else if tx.Delete(mine, Any) == Done {
						tx.Add("quota", -1, 0)
					}
					if n%7 == 0 {
						tx.Drop() // A call that fails.
						break
					}
					if tx.Commit() == nil {
						break
					}
					conflicts[g]++
				}
			}
		})
	}
	all.Wait()
	holds, used := 0, int64(0)
	for _, e := range m.All() {
		if strings.HasPrefix(e.Key, "holds/") {
			holds++
		} else if e.Key == "quota" {
			used, _ = e.counter()
		}
	}
	if int64(holds) != used || used > quota {
		t.Errorf("%d of %d are used, and %d hold one", used, quota, holds)
	}
	t.Logf("conflicts: %v", conflicts)
}

func listedEntries(t *Tx, prefix string) (numbers []int64) {
	for _, pair := range listed(t, prefix) {
		_, v, _ := strings.Cut(pair, "=")
		numbers = append(numbers, int64(binary.LittleEndian.Uint64([]byte(v))))
	}
	return numbers
}

func BenchmarkAdd(b *testing.B) {
	for _, entries := range []int{1, 1000, 10_000} {
		b.Run(fmt.Sprint(entries), func(b *testing.B) {
			m := New(20_000, 10<<20)
			var tx Tx
			tx.Begin(m, nil)
			for n := range entries {
				tx.Add(fmt.Sprintf("quota/%05d", n), 1, 9)
			}
			if err := tx.Commit(); err != nil {
				b.Fatal(err)
			}
			key := fmt.Sprintf("quota/%05d", entries/2)
			b.ReportAllocs()
			for b.Loop() {
				tx.Begin(m, nil)
				tx.Add(key, 1, math.MaxInt64)
				if err := tx.Commit(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
