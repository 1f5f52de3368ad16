// Command dirsync keeps a directory equal to another one. It shows what a keyed work queue is for: the keys
// are paths, the file system's events add them, and a few workers make the two directories equal, path by
// path.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"log"
	"math"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
	"golang.org/x/term"
)

const usage = `Usage: dirsync [flags] SOURCE DEST
Makes DEST equal to SOURCE and keeps it so until Ctrl-C, which lets it finish what is
queued. WHAT DEST HAS AND SOURCE HAS NOT IS REMOVED.

Size, time and permissions of files, permissions of directories and targets of links are
made equal. Links are not followed, directories stay writable for their owner, and pipes,
sockets and devices are left out. A path that fails is tried again for 5 s, and after that
when it changes or, with all others, once a minute.

Exit codes: 0 done; 1 something failed or was left undone; 2 bad arguments.

Flags:
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // A second signal kills.
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is main with its surroundings as arguments, and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	s := &syncer{start: time.Now(), log: log.New(stderr, "dirsync: ", 0)}
	flags := flag.NewFlagSet("dirsync", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.BoolVar(&s.once, "once", false, "make DEST equal once, and end; Ctrl-C ends it at once")
	flags.BoolVar(&s.verbose, "v", false, "print each path that is changed")
	flags.Usage = func() {
		fmt.Fprint(stderr, usage)
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	if err := s.open(flags.Args()); err != nil {
		s.log.Printf("%v (dirsync -h explains)", err)
		return 2
	}
	if err := s.run(ctx, stdout, stderr); err != nil {
		s.log.Print(err)
		return 1
	}
	return 0
}

// open opens the two directories, and refuses those with which something would be lost by mistake.
func (s *syncer) open(args []string) (err error) {
	if len(args) != 2 {
		return fmt.Errorf("want two arguments, SOURCE and DEST, behind the flags; got %q", args)
	}
	if os.Mkdir(args[1], 0o755) == nil {
		defer func() {
			if err != nil {
				os.Remove(args[1])
			}
		}()
	}
	source, err1 := filepath.EvalSymlinks(args[0])
	dest, err2 := filepath.EvalSymlinks(args[1])
	source, err3 := filepath.Abs(source)
	dest, err4 := filepath.Abs(dest)
	inSource, err5 := os.ReadDir(source)
	inDest, err6 := os.ReadDir(dest)
	switch err := cmp.Or(err1, err2, err3, err4, err5, err6); {
	case err != nil:
		return err
	case strings.HasPrefix(dest+"/", source+"/"):
		return errors.New("DEST is SOURCE or lies inside it: it would be copied into itself without end")
	case strings.HasPrefix(source, dest+"/"):
		return errors.New("SOURCE lies inside DEST: it would be removed as something that SOURCE does not have")
	case len(inSource) == 0 && len(inDest) > 0: // SOURCE may be the place of a disk that is not mounted.
		return errors.New("SOURCE is empty and DEST is not; if that is no mistake, empty DEST yourself")
	}
	src, err1 := os.OpenRoot(source)
	dst, err2 := os.OpenRoot(dest)
	s.src, s.dst = src, dst
	return errors.Join(err1, err2)
}

// run works until all is equal (with -once), until ctx ends, or until SOURCE or DEST disappears.
func (s *syncer) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	// A path that fails is retried after 20 ms, 40 ms, 80 ms and so on, and holds up no other.
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](20*time.Millisecond, 30*time.Second)
	s.queue = workqueue.NewTypedRateLimitingQueue(limiter)
	stats := s.queue.(workqueue.Extended[string]).Stats
	options := worker.Options[string]{
		Workers: 4, MaxRetries: 8, Drain: worker.All, CancelGrace: math.MaxInt64, // A copy ends with its context.
		OnFinish: func(_ context.Context, r worker.Result[string]) {
			if r.Next == worker.NextGiveUp {
				s.log.Printf("gave up on %q: %v", r.Key, r.Err)
			}
		},
	}
	if s.once {
		options.Drain, options.KeepQueue = worker.Nothing, true
	} else if s.watcher, err = fsnotify.NewWatcher(); err != nil {
		return err
	} else {
		defer s.watcher.Close()
		// Events may be lost. Once a minute "." comes, and with it everything.
		options.Resync = time.Minute
		options.List = func(context.Context) (iter.Seq[string], error) {
			s.asked.Add(1) // by the pool
			return slices.Values([]string{"."}), nil
		}
	}
	pool := worker.New(s.queue, s.sync, options)
	s.add(".") // Looking at a directory adds all that it holds.
	running, stop := context.WithCancel(ctx)
	var others sync.WaitGroup
	others.Go(func() {
		if idle := s.waitUntilIdle(running, stats, stderr); idle && s.once {
			stop()
		} else if idle {
			s.log.Print("first pass done; watching for changes (Ctrl-C ends)")
		}
	})
	if !s.once {
		others.Go(func() { s.watch(running) })
	}
	err = pool.Run(running)
	stop()
	others.Wait()
	q, failed := stats(), pool.Stats().GivenUp
	// With -once the queue still has what is left. Otherwise its shutdown has dropped it.
	left := q.Queued + q.Waiting + int(q.Dropped) + int(s.late.Load())
	neverQueued := int64(left) - int64(q.Queued) - int64(len(pool.Left().NotStarted))
	merged := max(0, s.asked.Load()+int64(q.Retries)-int64(q.Adds)-neverQueued)
	fmt.Fprintf(stdout,
		"%d paths seen, %d merged, %d copied, %d updated, %d directories made, %d removed, %d failed, %v\n",
		s.seen.Load(), merged, s.copied.Load(), s.updated.Load(), s.made.Load(), s.removed.Load(), failed,
		time.Since(s.start).Round(time.Millisecond))
	switch {
	case err != nil:
		return err
	case s.once && ctx.Err() != nil || left > 0:
		return fmt.Errorf("%d paths, and what is below them, are left for the next run", left)
	case s.once && failed > 0:
		return errors.New("not everything was made equal; put right what failed, and run dirsync again")
	}
	return nil
}

// waitUntilIdle returns true when no key is in the queue any more, and false if ctx ends first. Until then it
// shows the progress on a terminal.
func (s *syncer) waitUntilIdle(ctx context.Context, stats func() workqueue.Stats, stderr io.Writer) bool {
	f, terminal := stderr.(*os.File)
	terminal = terminal && !s.verbose && term.IsTerminal(int(f.Fd()))
	for n := 0; ; n++ {
		q := stats()
		if terminal && n%10 == 0 {
			fmt.Fprintf(stderr, "%d seen, %d queued, %d copied, %d removed\x1b[K\r",
				s.seen.Load(), q.Queued, s.copied.Load(), s.removed.Load())
		}
		if q.Queued+q.Processing+q.Waiting == 0 {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// syncer makes one path of DEST equal to the same path of SOURCE. It compares the two and never asks which
// event brought it there, so events may be late, merged or lost. A path is with one worker at a time, and a
// directory is made, listed and removed under its own path alone: no worker removes what another has just
// made.
type syncer struct {
	once, verbose                        bool
	start                                time.Time
	log                                  *log.Logger
	src, dst                             tree
	queue                                workqueue.TypedRateLimitingInterface[string]
	watcher                              *fsnotify.Watcher // nil with -once
	asked, late                          atomic.Int64      // adds, and those of them that came after the end
	seen, copied, updated, made, removed atomic.Int64
}

// tree is an [os.Root]: nothing that is done through it leads out of its directory. Tests have a tree
// that crashes.
type tree interface {
	Name() string
	FS() fs.FS
	Stat(name string) (fs.FileInfo, error)
	Lstat(name string) (fs.FileInfo, error)
	Readlink(name string) (string, error)
	OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error)
	Mkdir(name string, perm fs.FileMode) error
	Chmod(name string, mode fs.FileMode) error
	Chtimes(name string, atime, mtime time.Time) error
	Symlink(target, name string) error
	Rename(from, to string) error
	Remove(name string) error
	RemoveAll(name string) error
}

// look returns what is at key, and nil if nothing is there.
func look(dir tree, key string) (fs.FileInfo, error) {
	info, err := dir.Lstat(key)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	return info, err
}

// alive returns an error that ends the program if a directory's name does not lead to it any more: a deleted
// directory, or an unmounted disk, looks empty, and DEST would be emptied.
func (s *syncer) alive() error {
	for _, dir := range []tree{s.src, s.dst} {
		then, err1 := dir.Stat(".")
		now, err2 := os.Lstat(dir.Name())
		if err1 != nil || err2 != nil || !os.SameFile(then, now) {
			return worker.Fatal(fmt.Errorf("%q is no longer the directory it was at the start; put it back and start again",
				dir.Name()))
		}
	}
	return nil
}

func (s *syncer) add(key string) {
	s.asked.Add(1)
	if s.queue.ShuttingDown() {
		s.late.Add(1)
	}
	s.queue.Add(key)
}

const tempPrefix = ".dirsync-tmp-" // begins the names of temporary files
// While watching, a file is copied when it was not written to for so long.
const settleTime = 100 * time.Millisecond

var errChanging = errors.New("it is still being written")

// sync is the handler. What it returns decides what becomes of the key: nil, it is equal; RequeueAfter, it is
// too early; Fatal, the program ends; any other error, the limiter says when it is retried.
func (s *syncer) sync(ctx context.Context, key string) error {
	from, err1 := look(s.src, key)
	to, err2 := look(s.dst, key)
	if err := cmp.Or(s.alive(), err1, err2); err != nil {
		return err // What cannot be read is not missing.
	}
	switch {
	case from == nil || strings.Contains(key, tempPrefix):
		return s.remove(key, to)
	case from.IsDir():
		return s.syncDir(key, from, to)
	case from.Mode().IsRegular():
		return s.syncFile(ctx, key, from, to)
	case from.Mode().Type() == fs.ModeSymlink:
		target, err := s.src.Readlink(key)
		if has, _ := s.dst.Readlink(key); err != nil || has == target {
			return err
		}
		return s.replace(key, to, func(temp string) error { return s.dst.Symlink(target, temp) })
	}
	return nil // a pipe, a socket or a device
}

func (s *syncer) remove(key string, to fs.FileInfo) error {
	if to == nil || strings.Contains(key, s.tempName()) { // The latter is another worker's.
		return nil
	} else if err := s.dst.RemoveAll(key); err != nil {
		return err
	}
	s.did(&s.removed, "removed", key)
	return nil
}

// syncDir makes a directory and adds all that either side has in it.
func (s *syncer) syncDir(key string, from, to fs.FileInfo) error {
	if to == nil || !to.IsDir() {
		if err := errors.Join(s.dst.RemoveAll(key), s.dst.Mkdir(key, 0o700|from.Mode().Perm())); err != nil {
			return err
		}
		s.did(&s.made, "made", key+"/")
	} else if err := s.dst.Chmod(key, 0o700|from.Mode().Perm()); err != nil {
		return err
	}
	var cannotWatch error
	if s.watcher != nil { // Before the listing: what comes in between is seen twice, and not missed.
		cannotWatch = s.watcher.Add(filepath.Join(s.src.Name(), key))
	}
	for _, dir := range []tree{s.dst, s.src} {
		entries, err := fs.ReadDir(dir.FS(), key)
		if err != nil {
			return err
		}
		for _, e := range entries { // The queue makes one of a name that both have.
			s.add(path.Join(key, e.Name()))
			s.seen.Add(1)
		}
	}
	return cannotWatch // Changes wait for the next resync.
}

func (s *syncer) syncFile(ctx context.Context, key string, from, to fs.FileInfo) error {
	if to != nil && to.Mode() == from.Mode().Perm() && to.Size() == from.Size() &&
		to.ModTime().Equal(from.ModTime()) {
		return nil
	}
	age := time.Since(from.ModTime()) // A time in the future says nothing.
	err := errChanging
	if s.once || age < 0 || age >= settleTime {
		err = s.replace(key, to, func(temp string) error { return s.copyFile(ctx, key, temp, from) })
	}
	if errors.Is(err, errChanging) && !s.once {
		return worker.RequeueAfter(settleTime)
	}
	return err
}

// copyFile copies the file at key to temp. It returns errChanging if it is not the file that it was, or was
// written to.
func (s *syncer) copyFile(ctx context.Context, key, temp string, from fs.FileInfo) error {
	// O_NONBLOCK: a named pipe may have taken the file's place, and no writer may ever open it.
	in, err := s.src.OpenFile(key, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := s.dst.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	defer context.AfterFunc(ctx, func() { in.Close() })() // A copy ends with its context.
	n, err := io.Copy(out, io.LimitReader(in, from.Size()+1))
	if err != nil {
		return err
	}
	now, err := in.Stat()
	if err != nil || !os.SameFile(now, from) || n != now.Size() || !now.ModTime().Equal(from.ModTime()) {
		return errChanging
	}
	return errors.Join(out.Chmod(from.Mode().Perm()), out.Close(),
		s.dst.Chtimes(temp, time.Time{}, from.ModTime()))
}

// tempName is how the names of this run's temporary files begin. Those of a run that was killed are removed.
func (s *syncer) tempName() string { return fmt.Sprint(tempPrefix, s.start.UnixNano(), "-") }

// replace lets write make a file or a link under another name and renames it to key: no reader sees half of a
// file.
func (s *syncer) replace(key string, to fs.FileInfo, write func(temp string) error) error {
	temp := path.Join(path.Dir(key), s.tempName()+fmt.Sprint(time.Now().UnixNano()))
	defer s.dst.Remove(temp)
	if err := write(temp); err != nil {
		return err
	}
	if to != nil && to.IsDir() {
		if err := s.dst.RemoveAll(key); err != nil {
			return err
		}
	}
	if err := s.dst.Rename(temp, key); err != nil {
		return err
	}
	s.add(key) // Once more: a directory above may have got another name meanwhile.
	if to != nil {
		s.did(&s.updated, "updated", key)
	} else {
		s.did(&s.copied, "copied", key)
	}
	return nil
}

// watch adds the paths that the file system reports, until ctx ends.
func (s *syncer) watch(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			s.log.Printf("finishing what is queued (Ctrl-C again quits at once)")
			return
		case err := <-s.watcher.Errors:
			s.log.Printf("events were lost (%v): looking at everything", err)
			s.add(".")
		case event := <-s.watcher.Events:
			if event.Has(fsnotify.Rename) {
				s.unwatch(event.Name)
			}
			if key, err := filepath.Rel(s.src.Name(), event.Name); err == nil {
				s.add(filepath.ToSlash(key))
			}
		}
	}
}

// unwatch forgets a directory that has another name now, and those in it: they would be reported under the
// old one.
func (s *syncer) unwatch(dir string) {
	defer func() { recover() }() // fsnotify 1.10.1 panics if it watches one directory under two names.
	for _, watched := range s.watcher.WatchList() {
		if strings.HasPrefix(watched+"/", dir+"/") {
			s.watcher.Remove(watched)
		}
	}
}

// did counts a change and, with -v, prints it.
func (s *syncer) did(n *atomic.Int64, verb, key string) {
	n.Add(1)
	if s.verbose {
		s.log.Printf("%s %q", verb, key)
	}
}
