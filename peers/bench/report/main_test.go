package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCommitted asserts that the page and the figure are what the committed raw output says.
func TestCommitted(t *testing.T) {
	docs := filepath.Join("..", "..", "..", "docs")
	want, err := generate(docs)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range want {
		is, err := os.ReadFile(filepath.Join(docs, name))
		if err != nil {
			t.Fatal(err)
		}
		if string(is) != content {
			t.Errorf("docs/%s is not what the results say: go run ./peers/bench/report, in the root", name)
		}
	}
}

const sample = `go: go1.26
goos: linux
BenchmarkCycle/key=struct/keys=1000/impl=keyedqueue-priority-2 	 10	 1 ns/op	 50.0 ns/key	 0 B/op
BenchmarkCycle/key=struct/keys=1000/impl=keyedqueue-2 	 10	 1 ns/op	 60.00 ns/key	 0 B/op
BenchmarkCycle/key=struct/keys=1000/impl=keyedqueue-2 	 10	 1 ns/op	 90.00 ns/key	 0 B/op
BenchmarkCycle/key=struct/keys=1000/impl=keyedqueue-2 	 10	 1 ns/op	 70.00 ns/key	 0 B/op
BenchmarkCycle/key=struct/keys=1000/impl=client-go-2 	 10	 1 ns/op	 210 ns/key	 0 B/op
BenchmarkCycle/key=struct/keys=1000000/impl=keyedqueue 	 10	 1 ns/op	 140 ns/key	 0 B/op
BenchmarkCycle/key=struct/keys=1000000/impl=client-go 	 10	 1 ns/op	 2100 ns/key	 0 B/op
`

func TestTable(t *testing.T) {
	r, err := parse(strings.NewReader(sample))
	if err != nil {
		t.Fatal(err)
	}
	if r.header["goos"] != "linux" {
		t.Errorf("header = %v", r.header)
	}
	got := table{"cycle", "Cycle", []string{"ns/key"}}.markdown(r)
	want := `| keys | keyedqueue | keyedqueue-priority | client-go | client-go ÷ keyedqueue |
|---|--:|--:|--:|--:|
| 1,000 | 70 | 50 | 210 | 3.0× |
| 1,000,000 | 140 |  | 2,100 | 15× |
`
	if got != want {
		t.Errorf("\n%s\nwant\n%s", got, want)
	}
}
