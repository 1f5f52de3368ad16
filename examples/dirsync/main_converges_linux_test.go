package main

import (
	"context"
	"io"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue/handlertest"
	"github.com/keyedqueue/workqueue/worker"
)

// crashing is a directory in which each write takes time, and after which the process may crash.
type crashing struct {
	*os.Root
	p *handlertest.Process
}

func (d crashing) write(what string, write func() error) error {
	return d.p.Write(d.p.Context(), what, write)
}

func (d crashing) OpenFile(name string, flag int, perm fs.FileMode) (f *os.File, err error) {
	if flag&os.O_CREATE == 0 {
		return d.Root.OpenFile(name, flag, perm)
	}
	err = d.write("opens "+filepath.Dir(name)+"/...", func() error { f, err = d.Root.OpenFile(name, flag, perm); return err })
	return f, err
}

func (d crashing) Mkdir(name string, perm fs.FileMode) error {
	return d.write("makes "+name+"/", func() error { return d.Root.Mkdir(name, perm) })
}

func (d crashing) Symlink(target, name string) error {
	return d.write("links to "+target, func() error { return d.Root.Symlink(target, name) })
}

func (d crashing) Rename(from, to string) error {
	return d.write("renames to "+to, func() error { return d.Root.Rename(from, to) })
}

func (d crashing) Remove(name string) error {
	return d.write("removes ...", func() error { return d.Root.Remove(name) })
}

func (d crashing) RemoveAll(name string) error {
	return d.write("removes "+name, func() error { return d.Root.RemoveAll(name) })
}

// No matter what becomes of events and of the process, DEST is equal to SOURCE in the end.
func TestConverges(t *testing.T) {
	base := t.TempDir()
	handlertest.Converges(t, func(s *handlertest.Scenario[string]) {
		d := &dirs{T: t, src: filepath.Join(base, "src"), dst: filepath.Join(base, "dst")}
		d.do(os.RemoveAll(d.src), os.RemoveAll(d.dst), os.Mkdir(d.src, 0o755), os.Mkdir(d.dst, 0o755))
		d.write(d.src, "file", "1")
		d.write(d.src, "dir/sub/file", "1")
		d.write(d.src, "dir/file", "1")
		d.write(d.src, "other/file of other", "1")
		d.write(d.src, "kind", "a file")
		d.do(os.Symlink("file", filepath.Join(d.src, "link")))
		d.write(d.dst, "dir/extra", "1")
		d.write(d.dst, "link/file", "1")

		var last *handlertest.Process
		var live *syncer
		// change changes SOURCE, whose events the program gets later. A process that starts looks at everything.
		change := func(after time.Duration, do func(), names ...string) {
			s.At(after, func() {
				s.Tell("changes %v", names)
				do()
				for _, name := range names {
					if last != nil {
						last.Show("events", name, func() { live.add(name) }, nil)
					}
				}
			})
		}
		at := func(name string) string { return filepath.Join(d.src, name) }
		change(5*time.Millisecond, func() { d.write(d.src, "file", "longer") }, "file")
		// A copy of dir/file that still runs must not stay: the directory that has the name then has no such file.
		change(10*time.Millisecond, func() { d.do(os.Rename(at("dir"), at("moved")), os.Rename(at("other"), at("dir"))) }, "dir", "moved", "other")
		change(15*time.Millisecond, func() { d.do(os.Remove(at("kind"))); d.write(d.src, "kind/file", "now in a directory") }, "kind")
		change(20*time.Millisecond, func() { d.do(os.RemoveAll(at("moved/sub")), os.Symlink("../file", at("moved/sub"))) }, "moved/sub")
		change(2*time.Second, func() { d.do(os.Remove(at("link"))) }, "link")

		s.Settle, s.Runs = time.Second, 100 // On real files.
		s.Measure = func() any {
			if diff := d.differ(); diff != "" {
				return "SOURCE\n" + diff
			}
			return "equal"
		}
		s.Options.Workers = 4
		s.Start = func(p *handlertest.Process) worker.Handler[string] {
			src, err1 := os.OpenRoot(d.src)
			dst, err2 := os.OpenRoot(d.dst)
			d.do(err1, err2)
			context.AfterFunc(p.Context(), func() { src.Close(); dst.Close() })
			live = &syncer{start: time.Now(), log: log.New(io.Discard, "", 0), src: crashing{src, p}, dst: crashing{dst, p}, queue: s.QueueOf(p)}
			last = p
			live.add(".")
			return live.sync
		}
	})
}
