package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const sample = `package sample

import "time"

const width = 1 << 3 // A constant has no mutants.

var mask = uint8(1<<width - 1)

type flag bool

func Abs(x int) int {
	if x < 0 {
		return -x
	}
	return x
}

func Sum[T ~uint8 | ~float64](xs []T) (sum T, joined string) {
	for i := 0; i < len(xs); i++ {
		sum += xs[i]
		joined += "x"
	}
	return sum, joined + "."
}

func Minutes(n int) time.Duration { return time.Duration(n) * (2 * time.Minute) }

func Bits(x uint8, n int) uint8 { return (x|1<<n)&mask ^ x>>1 }

// With break for continue, it has no return at its end.
func First(xs []int, skip int) int {
	for i := 0; ; i++ {
		if xs[i] == skip {
			continue
		}
		return xs[i]
	}
}

// With || for &&, it does not compile.
func Both(a, b flag) flag { return a && b }

// With -- for ++, it does not end.
func Count(n int) (c int) {
	for c != n {
		c++
	}
	return c
}

func NotCalled(a, b int) bool { return a == b || a%3 != b }
`

const sampleTest = `package sample

import (
	"testing"
	"time"
)

func Test(t *testing.T) {
	if Abs(-2) != 2 || Abs(3) != 3 {
		t.Error("Abs")
	}
	if n, s := Sum([]uint8{1, 2, 4}); n != 7 || s != "xxx." {
		t.Error("Sum")
	}
	if Minutes(3) != 6*time.Minute {
		t.Error("Minutes")
	}
	if Bits(0b1000_0100, 4) != 0b1101_0110 {
		t.Errorf("Bits = %b", Bits(0b1000_0100, 4))
	}
	if First([]int{1, 1, 2}, 1) != 2 {
		t.Error("First")
	}
	Both(true, false)
	if Count(5) != 5 {
		t.Error("Count")
	}
}
`

// enterModule makes a module of a file and its tests, changes to its directory, and returns that.
func enterModule(t *testing.T, code, tests string) string {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module sample\n\ngo 1.25\n", "sample.go": code, "sample_test.go": tests,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	t.Setenv("GOWORK", "off")
	return dir
}

func TestSample(t *testing.T) {
	dir := enterModule(t, sample, sampleTest)
	var report bytes.Buffer
	if err := run(&report, ".", regexp.MustCompile(""), 2); err != nil {
		t.Fatal(err)
	}
	got := strings.ReplaceAll(report.String(), dir+string(filepath.Separator), "")
	want := `sample.go:12:7: < to <= lived
sample.go:51:42: == to != not covered
sample.go:51:51: % to * not covered
sample.go:51:54: != to == not covered
sample.go:51:47: || to && not covered
sample: 18 killed, 1 timed out, 1 lived, 4 not covered: 95.0 % of the covered ones
`
	if got != want {
		t.Errorf("the report is\n%swant\n%s", got, want)
	}
}

// A package whose tests fail has no figures.
func TestFailingTests(t *testing.T) {
	enterModule(t, "package sample\n\nfunc F() {}\n",
		"package sample\n\nimport \"testing\"\n\nfunc Test(t *testing.T) { t.Error(\"it fails\") }\n")
	if err := run(&bytes.Buffer{}, ".", regexp.MustCompile(""), 1); err == nil || !strings.Contains(err.Error(), "it fails") {
		t.Errorf("run() = %v", err)
	}
}
