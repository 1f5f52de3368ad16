package main

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// A watcher turns what happens in SOURCE into keys. It does not care what happened: an event says
// that a path is worth a look, and the look finds out the rest. The periodic rescan asks for every
// path, so whatever the events missed is found then.
type watcher struct {
	events *fsnotify.Watcher
	root   string // SOURCE
	rep    *report

	warn sync.Once // tells that not everything can be watched
}

func newWatcher(root string, rep *report) (*watcher, error) {
	events, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	return &watcher{events: events, root: root, rep: rep}, nil
}

func (w *watcher) close() { w.events.Close() }

// watch begins to watch one directory; what lies below has to be watched by itself. The workers
// call it for every directory that they list. To watch one twice is harmless, and needed where a
// directory has taken another's name.
func (w *watcher) watch(key string) {
	err := w.events.Add(filepath.Join(w.root, filepath.FromSlash(key)))
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fsnotify.ErrClosed) {
		return
	}
	w.warn.Do(func() {
		w.rep.say("cannot watch %q, and perhaps others: %v; changes there wait for the next rescan", key, err)
	})
}

// unwatch forgets a directory that got another name, and all below it. Their watches would live on
// and report changes under the old names.
func (w *watcher) unwatch(key string) {
	for _, p := range w.events.WatchList() {
		if dir, err := w.key(p); err == nil && within(key, dir) {
			w.remove(p)
		}
	}
}

// remove ends one watch, if it is still there. fsnotify 1.10.1 panics when p was watched, then named a
// directory that it watched under another name, and is removed: Add leaves an entry behind that
// leads nowhere. At the time of the panic the entry is gone, which is all that is wanted.
func (w *watcher) remove(p string) {
	defer func() { recover() }()
	w.events.Remove(p)
}

// run passes on events until ctx ends: the ones of the file system, and those of the clock.
func (w *watcher) run(ctx context.Context, s *syncer, rescan time.Duration) error {
	var tick <-chan time.Time
	if rescan > 0 {
		t := time.NewTicker(rescan)
		defer t.Stop()
		tick = t.C
	}
	for {
		select {
		case <-ctx.Done():
			return nil

		case <-tick:
			s.list(".")

		case err, ok := <-w.events.Errors:
			if !ok {
				return errors.New("the file system's events ended")
			}
			// Usually more events at a time than the kernel keeps. Which ones were lost is
			// not known, so everything is looked at, and watched anew.
			w.rep.say("events were lost (%v): looking at everything", err)
			w.unwatch(".")
			s.list(".")

		case ev, ok := <-w.events.Events:
			if !ok {
				return errors.New("the file system's events ended")
			}
			key, err := w.key(ev.Name)
			if err != nil {
				continue
			}
			w.rep.events.Add(1)
			if ev.Has(fsnotify.Rename) && key != "." {
				w.unwatch(key)
			}
			if ev.Has(fsnotify.Create) || ev.Has(fsnotify.Rename) {
				// If there is a directory, it may have come with children. So it may
				// after a Rename: what was there has gone, another may have come and
				// been unwatched just now.
				s.list(key)
			} else {
				s.add(key)
			}
			if ev.Has(fsnotify.Create) || ev.Has(fsnotify.Remove) || ev.Has(fsnotify.Rename) {
				s.add(path.Dir(key)) // its modification time has changed, too
			}
		}
	}
}

// key returns the key of a path that fsnotify reported.
func (w *watcher) key(name string) (string, error) {
	rel, err := filepath.Rel(w.root, name)
	return filepath.ToSlash(rel), err
}

// within reports whether key is dir or lies below it.
func within(dir, key string) bool {
	return dir == "." || key == dir || strings.HasPrefix(key, dir+"/")
}
