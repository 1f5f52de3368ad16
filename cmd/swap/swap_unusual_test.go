package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// small is a program that uses nothing but the queue. Its test fails on client-go's queue.
const small = `
-- go.mod --
module example.com/small

go 1.23.0

require k8s.io/client-go v0.33.0
-- small_test.go --
package small

import (
	"reflect"
	"testing"

	"k8s.io/client-go/util/workqueue"
)

func Test(t *testing.T) {
	queue := workqueue.NewTyped[string]()
	if got := reflect.TypeOf(queue).Elem().PkgPath(); got != "` + queuePath + `" {
		t.Error("a queue of", got)
	}
}
`

// forked are the names that the fork exports.
var forked = []string{"NewTyped", "Typed", "TypedInterface", "TypedQueueConfig"}

// fork is added to small: a client-go of its own, at another path, with the workqueue that the sources are
// added to.
const fork = `
-- ../fork/go.mod --
module example.com/fork

go 1.23.0

require (
	k8s.io/apimachinery v0.33.0
	k8s.io/utils v0.0.0-20241104100929-3ea5e8cea738
)
-- ../fork/util/workqueue/queue.go --
package workqueue

import "k8s.io/utils/clock"

type TypedInterface[T comparable] interface {
	Add(item T)
	Len() int
	Get() (item T, shutdown bool)
	Done(item T)
	ShutDown()
	ShutDownWithDrain()
	ShuttingDown() bool
}

type Typed[T comparable] struct {
	queue []T
}

func NewTyped[T comparable]() *Typed[T] { return nil }

type TypedQueueConfig[T comparable] struct {
	Name  string
	Clock clock.WithTicker
}
`

// writeFork writes small with a fork whose workqueue has source too.
func writeFork(t *testing.T, source string) (dir string) {
	t.Helper()
	dir = write(t, small+fork+"-- ../fork/util/workqueue/more.go --\npackage workqueue\n"+source)
	shell(t, dir, "go mod edit -replace k8s.io/client-go=../fork && go mod tidy")
	return dir
}

func TestFork(t *testing.T) {
	dir := writeFork(t, "")
	before := tree(t, filepath.Dir(dir))
	r := swapIn(t, dir)
	if !slices.Equal(r.names, forked) {
		t.Errorf("forwarded %q, want %q", r.names, forked)
	}
	shell(t, dir, "go test -modfile=swap.mod ./...")
	if after := tree(t, filepath.Dir(dir)); after != before {
		t.Errorf("files before:\n%safter:\n%s", before, after)
	}
}

func TestUnsupported(t *testing.T) {
	for name, test := range map[string]struct {
		source string
		want   []string
	}{
		"a new function": {
			"func Move[T comparable](from, to TypedInterface[T]) { from.ShutDown() }",
			[]string{"Move is not in this version of " + queuePath, "try a newer -version"},
		},
		"another signature": {
			"func NewTypedDelayingQueue[T any](names ...string) map[string]int { return nil }",
			[]string{"NewTypedDelayingQueue", "cannot use"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := writeFork(t, test.source)
			_, err := trySwap(dir)
			wantError(t, err, append(test.want, "k8s.io/client-go v0.33.0 => ../fork")...)
			for _, name := range []string{modName, sumName, dirName} {
				if exists(filepath.Join(dir, name)) {
					t.Errorf("the failure left %s", name)
				}
			}
		})
	}
}

func TestVendor(t *testing.T) {
	dir := writeFork(t, "")
	shell(t, dir, "go mod vendor")
	r := swapIn(t, dir)
	if !strings.Contains(r.String(), "\tgo test -modfile=swap.mod -mod=mod ./...\n") ||
		!strings.Contains(r.String(), "not from the vendor directory") {
		t.Errorf("swap printed:\n%s", r)
	}
	shell(t, dir, r.command("test")+" ./...")
}

func TestWorkspace(t *testing.T) {
	// The workspace has client-go, and another module that the program does not even require. What that one
	// replaces is also replaced for the program, unless the workspace replaces it otherwise.
	dir := write(t, strings.Replace(small, "queue := ", "_ = other.Version\nqueue := ", 1)+fork+`
-- ../other/go.mod --
module example.com/other

go 1.23.0
-- ../other/other.go --
package other

import "example.com/third"

import "example.com/fourth"

const Version = third.Version + fourth.Version
-- ../third/go.mod --
module example.com/third
-- ../third/third.go --
package third

const Version = 1
-- ../fourth/go.mod --
module example.com/fourth
-- ../fourth/fourth.go --
package fourth

const Version = 1
-- ../go.work --
go 1.23.0

use (
	./fork
	./other
	./program
)

replace example.com/third => ./third
`)
	shell(t, dir,
		`sed -i 's/^module .*/module k8s.io\/client-go/' ../fork/go.mod && (cd ../fork && GOWORK=off go mod tidy)`)
	shell(t, dir, `sed -i 's/^import (/import (\n"example.com\/other"/' small_test.go`)
	shell(t, dir, `cat >>../other/go.mod <<'END'
require (
	example.com/third v0.0.0
	example.com/fourth v0.0.0
)
replace (
	example.com/third => ../nowhere
	example.com/fourth => ../fourth
	example.com/small => ../program
)
END
go vet ./...`)
	r := swapIn(t, dir)
	if !slices.Equal(r.names, forked) {
		t.Errorf("that is not the workspace's client-go: forwarded %q", r.names)
	}
	if !strings.Contains(r.String(), "\tGOWORK=off go test -modfile=swap.mod ./...\n") {
		t.Errorf("swap printed:\n%s", r)
	}
	shell(t, dir, r.command("test")+" ./...")
}

// The program requires a queue already, and a newer one than swap would.
func TestProgramUsesOurs(t *testing.T) {
	dir := writeFork(t, "")
	shell(t, dir, "go mod edit -require="+queuePath+"@v0.9.0 -replace "+queuePath+
		"=../nowhere -godebug=default=go1.22")
	swapIn(t, dir)
	shell(t, dir, "go test -modfile=swap.mod ./...")
	data, err := os.ReadFile(filepath.Join(dir, modName))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{queuePath + " v0.9.0", queuePath + " => " + inRepository.dir,
		"godebug default=go1.22\n"} {
		if !strings.Contains(string(data), want) {
			t.Errorf("no %q in\n%s", want, data)
		}
	}
}

func TestRefused(t *testing.T) {
	for name, test := range map[string]struct {
		prepare string
		want    string
	}{
		"no module": {"rm go.mod", "no go.mod here or above"},
		"no client-go": {"go mod edit -droprequire k8s.io/client-go && rm *.go",
			"builds with no k8s.io/client-go"},
		"client-go itself": {"go mod edit -module k8s.io/client-go && go mod edit -droprequire k8s.io/client-go",
			"client-go itself"},
		"untyped queues only": {"go mod edit -replace k8s.io/client-go=../old && go mod tidy",
			"swap needs client-go v0.31 or newer"},
		"somebody's swap.mod": {"touch swap.mod", "swap.mod exists, and swap did not write it"},
		"somebody's swap.sum": {"touch swap.sum", "swap.sum exists, and swap did not write it"},
		"somebody's .swap":    {"mkdir .swap", ".swap exists, and swap did not write it"},
		"a broken go.mod":     {"echo nonsense >>go.mod", "unknown directive: nonsense"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := write(t, small+`
-- ../old/go.mod --
module k8s.io/client-go

go 1.20
-- ../old/util/workqueue/queue.go --
package workqueue

type Interface interface{ Len() int }

func NewTyped[T any]() Interface { return nil }
`)
			shell(t, dir, test.prepare)
			before := shell(t, dir, "find . | sort")
			_, err := trySwap(dir)
			wantError(t, err, test.want)
			if after := shell(t, dir, "find . | sort"); after != before {
				t.Errorf("files before:\n%safter:\n%s", before, after)
			}
		})
	}
	t.Run("-modfile in GOFLAGS", func(t *testing.T) {
		t.Setenv("GOFLAGS", "-modfile=other.mod")
		_, err := findProgram(write(t, small+"-- other.mod --\nmodule other\n"))
		wantError(t, err, "GOFLAGS has -modfile")
	})
}

func TestCommandLine(t *testing.T) {
	t.Chdir(write(t, small))
	var stdout strings.Builder
	if err := run([]string{"-h"}, &stdout); err != nil ||
		!strings.Contains(stdout.String(), "go test -modfile=swap.mod") || !strings.Contains(stdout.String(), "-remove") {
		t.Errorf("-h: %v\n%s", err, stdout.String())
	}
	stdout.Reset()
	wantError(t, run([]string{"-nonsense"}, &stdout), "not defined: -nonsense (see -h)")
	wantError(t, run([]string{"./..."}, &stdout), `unexpected argument "./..."`)
	wantError(t, run([]string{"-replace", "."}, &stdout), "that is module example.com/small")
	wantError(t, run([]string{"-replace", "nowhere"}, &stdout), "-replace nowhere: ")
	if err := run([]string{"-remove"}, &stdout); err != nil {
		t.Errorf("-remove where there is nothing: %v", err)
	}
}
