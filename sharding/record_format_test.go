package sharding

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

func randomTable(r *rand.Rand, slots, members int) *table {
	t := emptyTable("table-1", slots, 1_700_000_000_000)
	member := func() string {
		return fmt.Sprintf("website-controller-7d9c5b6f4-%05d-abcdefghij",
			r.IntN(members))
	}
	for s := range t.slots {
		t.slots[s] = tableSlot{holder: member(), epoch: t.epoch - r.Int64N(100_000)}
		if r.IntN(2) == 0 {
			t.slots[s].next = member()
		}
	}
	t.leaving = []string{member()}
	return t
}

func TestTableIsReadAsItWasWritten(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		n := 1 + r.IntN(300)
		want := randomTable(r, n, 1+r.IntN(20))
		want.settling = r.IntN(2) == 0
		got, err := decodeTable(Record{Data: want.encode()}, n)
		if err != nil {
			t.Fatal(err)
		}
		if got.id != want.id || got.epoch != want.epoch || !got.equals(want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	}
}

// TestLargestTable: 4,096 slots of a hundred members, all different from their neighbours, and half of them
// to move.
func TestLargestTable(t *testing.T) {
	data := randomTable(rand.New(rand.NewPCG(1, 2)), maxSlots, 100).encode()
	if len(data) > 64_000 {
		t.Errorf("%d bytes", len(data))
	}
	t.Logf("%d bytes", len(data))
}

func TestWrongTables(t *testing.T) {
	good := emptyTable("t", 4, 5)
	good.give(1, "a")
	data := good.encode()
	if _, err := decodeTable(Record{Data: data}, 4); err != nil {
		t.Fatal(err)
	}
	replace := func(old, new string) string {
		if !strings.Contains(data, old) {
			t.Fatalf("no %s in %s", old, data)
		}
		return strings.ReplaceAll(data, old, new)
	}
	for what, c := range map[string]struct{ data, want string }{
		"empty":   {"", "is not a record of this library"},
		"foreign": {`{"kind":"Lease"}`, "is not a record of this library"},
		"no JSON": {"-", "is not a record of this library"},
		"newer": {replace(`"format":1`, `"format":2`),
			"has format 2, and this version of the library understands 1: upgrade"},
		"newer, other":  {`{"format":2,"epoch":"x"}`, "has format 2"},
		"other slots":   {emptyTable("t", 8, 5).encode(), "divides keys into 8 slots, and this replica into 4"},
		"no id":         {replace(`"t"`, `""`), "is not a record of this library"},
		"too few":       {replace(`[-1,0,-1,-1]`, `[-1,0,-1]`), "is not a record of this library"},
		"too many":      {replace(`[-1,0,-1,-1]`, `[-1,0,-1,-1,-1]`), "is not a record of this library"},
		"no number":     {replace(`[-1,0,-1,-1]`, `[-1,0,-1,"x"]`), "is not a record of this library"},
		"member":        {replace(`[-1,0,-1,-1]`, `[-1,7,-1,-1]`), "is not a record of this library"},
		"unknown next":  {replace(`[-1,-1,-1,-1]`, `[-1,9,-1,-1]`), "is not a record of this library"},
		"negative":      {replace(`[-1,-1,-1,-1]`, `[-1,-2,-1,-1]`), "is not a record of this library"},
		"no epoch":      {replace(`,"ages":[0,0,0,0]`, ""), "is not a record of this library"},
		"future epoch":  {replace(`[0,0,0,0]`, `[0,-3,0,0]`), "is not a record of this library"},
		"no such epoch": {replace(`[0,0,0,0]`, `[0,6,0,0]`), "is not a record of this library"},
		"great epoch":   {replace(`"epoch":5`, `"epoch":9007199254740993`), "is not a record of this library"},
	} {
		_, err := decodeTable(Record{Name: "g-table", Group: "another", Data: c.data}, 4)
		if !errors.Is(err, ErrIncompatible) || !strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), "g-table") {
			t.Errorf("%s: %v\nin %s", what, err, c.data)
		}
	}
}

func TestMemberRecords(t *testing.T) {
	want := memberData{Format: 1, ID: "a", Sequence: 7, Lease: 15e9, Table: "t", Slots: 4}
	if got, err := decodeMember(Record{Data: encode(want)}); got != want || err != nil {
		t.Errorf("got %v, %v", got, err)
	}
	for _, data := range []string{
		"", "{}", `{"format":2}`, `{"format":1,"member":"a"}`, `{"format":1,"lease":5}`,
		`{"format":1,"member":"a","lease":5,"epoch":9223372036854775807}`,
		`{"format":1,"member":"a","lease":5,"epoch":-1}`,
		`{"format":1,"member":"a","lease":86400000000001}`,
	} {
		if _, err := decodeMember(Record{Data: data}); !errors.Is(err, ErrIncompatible) {
			t.Errorf("%s: %v", data, err)
		}
	}
}
