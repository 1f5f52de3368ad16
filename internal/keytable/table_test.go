package keytable

import (
	"fmt"
	"testing"
)

func BenchmarkChurn(b *testing.B) {
	for _, n := range []int{1, 1000, 100_000, 1_000_000} {
		keys := make([]string, n)
		for i := range keys {
			keys[i] = fmt.Sprintf("namespace-%d/name-%d", i%100, i)
		}
		b.Run(fmt.Sprintf("impl=table/keys=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			var t Table[string, uint64]
			slots := make([]Slot, n)
			for i := 0; i < b.N; {
				for j, k := range keys {
					slots[j], _, _ = t.FindOrInsert(HashOf(k), k)
				}
				for _, k := range keys {
					s, _ := t.Find(HashOf(k), k)
					t.Delete(s)
				}
				i += n
			}
		})
		b.Run(fmt.Sprintf("impl=map/keys=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			t := map[string]uint64{}
			for i := 0; i < b.N; {
				for _, k := range keys {
					t[k]++
				}
				for _, k := range keys {
					if _, ok := t[k]; ok {
						delete(t, k)
					}
				}
				i += n
			}
		})
	}
}
