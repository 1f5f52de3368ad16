package main

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// A syncer makes one path of DEST equal to the same path of SOURCE. That is all it knows how to
// do: it compares what is there with what should be there, and never asks which event brought it
// here. So events may be late, doubled or lost, and any number of them may be merged into one.
//
// It counts on the queue for one thing: no two workers hold the same key at a time. A directory
// is made and removed under its own key alone, never on behalf of a path inside it, so no worker
// can remove a directory that another has just filled.
type syncer struct {
	src, dst *tree
	settle   time.Duration
	rep      *report
	run      string // marks this run's temporary files, see copy.go

	add   func(key string) // asks for another key
	watch func(key string) // a directory of SOURCE is about to be listed; nil unless watching

	mu       sync.Mutex
	unlisted map[string]struct{}  // directories to list when their turn comes
	missing  map[string]time.Time // what DEST has and SOURCE has not, since when

	usersMu sync.Mutex
	users   map[string]int // workers that are changing something inside a directory of DEST
}

func newSyncer(src, dst *tree, settle time.Duration, rep *report, add func(string)) *syncer {
	return &syncer{
		src: src, dst: dst, settle: settle, rep: rep, add: add,
		run:      rand.Text()[:8],
		unlisted: make(map[string]struct{}),
		missing:  make(map[string]time.Time),
		users:    make(map[string]int),
	}
}

// list asks for key and, should it be a directory, for everything below it.
func (s *syncer) list(key string) {
	s.unlist(key)
	s.add(key)
}

func (s *syncer) unlist(key string) {
	s.mu.Lock()
	s.unlisted[key] = struct{}{}
	s.mu.Unlock()
}

// toList returns how many directories are still to be listed.
func (s *syncer) toList() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.unlisted)
}

// syncKey makes DEST equal to SOURCE at key. If it is too early to tell, it changes nothing and
// says after which time to look again.
func (s *syncer) syncKey(ctx context.Context, key string) (again time.Duration, err error) {
	if isTemp(key) {
		return 0, s.removeLeftover(ctx, key)
	}
	s.mu.Lock()
	_, list := s.unlisted[key]
	delete(s.unlisted, key)
	s.mu.Unlock()
	defer func() {
		if err == nil {
			return
		}
		err = shortPaths(err)
		if list {
			s.unlist(key)
		}
		if gone := s.alive(); gone != nil {
			err = gone // which explains everything
		}
	}()

	from, err := s.src.at(key)
	defer from.close()
	if err != nil && !errors.Is(err, errNoParent) {
		return 0, err // unreadable is not the same as absent
	}
	to, err := s.dst.at(key)
	defer to.close()
	if errors.Is(err, errNoParent) {
		if from.info == nil {
			s.found(key)
			return 0, nil
		}
		s.add(path.Dir(key)) // it will list its children once it has been made
		return 0, err
	}
	if err != nil {
		return 0, err
	}
	if from.info == nil {
		return s.syncAbsent(ctx, key, from, to)
	}
	s.found(key)
	switch from.info.Mode().Type() {
	case fs.ModeDir:
		return 0, s.syncDir(key, from, to, list)
	case 0: // a regular file
		return s.syncFile(ctx, key, from, to)
	case fs.ModeSymlink:
		return 0, s.syncLink(ctx, key, from, to)
	default:
		s.rep.skip(key, "a named pipe, a socket or a device")
		return 0, nil
	}
}

// syncAbsent removes what SOURCE no longer has, but only what it has not had for the settle time.
// Editors save by removing and creating, and "rm -r SOURCE" removes the files first and SOURCE
// last: a moment later it is clear what was meant.
func (s *syncer) syncAbsent(ctx context.Context, key string, from, to place) (again time.Duration, err error) {
	if to.info == nil {
		s.found(key)
		return 0, nil
	}
	if err := s.src.alive(); err != nil {
		return 0, err
	}
	s.mu.Lock()
	since, known := s.missing[key]
	if !known {
		since = time.Now()
		s.missing[key] = since
	}
	s.mu.Unlock()
	if wait := s.settle - time.Since(since); wait > 0 {
		return wait, nil
	}
	if err := s.change(key, from, to, func() error { return removeTree(ctx, to.dir, to.name) }); err != nil {
		return 0, err
	}
	s.found(key)
	s.rep.removed.Add(1)
	s.rep.forgetBelow(key)
	s.rep.action("removed", key)
	return 0, nil
}

// found ends the waiting of syncAbsent: the key is there again, or gone on both sides.
func (s *syncer) found(key string) {
	s.mu.Lock()
	delete(s.missing, key)
	s.mu.Unlock()
}

func (s *syncer) syncFile(ctx context.Context, key string, from, to place) (again time.Duration, err error) {
	perm := from.info.Mode().Perm()
	exists := to.info != nil
	if exists && to.info.Mode().IsRegular() && unchanged(from.info, to.info) {
		// Permission bits only: ownership is not copied, and set-user-ID without its
		// owner would lend this user's rights to whoever runs the file.
		const bits = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky
		if to.info.Mode()&bits == perm {
			return 0, nil
		}
		if err := to.dir.Chmod(to.name, perm); err != nil {
			return 0, err
		}
		s.rep.updated.Add(1)
		s.rep.action("mode of", key)
		return 0, nil
	}
	// A time in the future says nothing about when the file was written.
	if age := time.Since(from.info.ModTime()); age >= 0 && age < s.settle {
		return s.settle - age, nil
	}
	err = s.change(key, from, to, func() error { return s.copyFile(ctx, from, to) })
	if errors.Is(err, errChanged) {
		return s.settle, nil
	}
	if err != nil {
		return 0, err
	}
	s.rep.bytes.Add(from.info.Size())
	s.rep.wrote(key, exists)
	return 0, nil
}

func (s *syncer) syncLink(ctx context.Context, key string, from, to place) error {
	target, err := from.dir.Readlink(from.name)
	if err != nil {
		return err
	}
	if !staysInside(key, target) {
		s.rep.skip(key, "a link that leads, or may lead, out of SOURCE")
		return nil
	}
	exists := to.info != nil
	if exists && to.info.Mode().Type() == fs.ModeSymlink {
		if has, err := to.dir.Readlink(to.name); err == nil && has == target {
			return nil
		}
	}
	if err := s.change(key, from, to, func() error { return s.makeLink(ctx, target, to) }); err != nil {
		return err
	}
	s.rep.wrote(key, exists)
	return nil
}

// staysInside reports whether a link at key can only lead to somewhere inside the tree. Steps up
// are allowed at the beginning alone: there they start from the link's own directory, which is no
// link. In "x/../.." it matters what x is, and x may be another link.
func staysInside(key, target string) bool {
	target = filepath.ToSlash(target)
	if target == "" || path.IsAbs(target) || filepath.VolumeName(target) != "" {
		return false
	}
	depth, down := strings.Count(key, "/"), false
	for elem := range strings.SplitSeq(target, "/") {
		switch elem {
		case "", ".":
		case "..":
			if depth--; down || depth < 0 {
				return false
			}
		default:
			down = true
		}
	}
	return true
}

// unchanged compares what is cheap to compare, as rsync does: a file whose content changed while
// its size and time did not is taken for the same.
func unchanged(a, b fs.FileInfo) bool {
	return a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}
