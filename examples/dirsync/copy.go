package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// errChanged: the file was written to while it was copied. The copy is thrown away.
var errChanged = errors.New("changed while it was copied")

// chunk is how much is copied between two looks at the context.
const chunk = 8 << 20

var tempCount atomic.Int64

// tempName returns a name for a temporary file. It carries the run's own mark, so that leftovers
// of a run that was killed can be told from files that are being written right now.
func (s *syncer) tempName() string {
	return fmt.Sprintf(".dirsync-%s-%d.tmp", s.run, tempCount.Add(1))
}

func isTemp(key string) bool {
	name := path.Base(key)
	return strings.HasPrefix(name, ".dirsync-") && strings.HasSuffix(name, ".tmp")
}

// removeLeftover removes a temporary file from DEST, unless a worker of this run is writing it.
func (s *syncer) removeLeftover(ctx context.Context, key string) error {
	if strings.HasPrefix(path.Base(key), ".dirsync-"+s.run+"-") {
		return nil
	}
	to, err := s.dst.at(key)
	defer to.close()
	if errors.Is(err, errNoParent) || err == nil && to.info == nil {
		return nil
	}
	if err != nil {
		return err
	}
	s.rep.action("leftover", key)
	return s.change(key, place{}, to, func() error { return removeTree(ctx, to.dir, to.name) })
}

// copyFile copies a file to a temporary one beside its target, complete with mode and time, and
// renames it. A reader of the target finds the old content or the new one, never part of either.
func (s *syncer) copyFile(ctx context.Context, from, to place) (err error) {
	// Not waiting for a writer: a named pipe may have taken the file's place just now.
	in, err := from.dir.OpenFile(from.name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	// The link that os.Root would follow may have taken the file's place, too.
	if now, err := in.Stat(); err != nil {
		return err
	} else if !os.SameFile(now, from.info) || !now.Mode().IsRegular() {
		return errChanged
	}

	temp := s.tempName()
	out, err := to.dir.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		out.Close()
		if err != nil {
			to.dir.Remove(temp)
		}
	}()
	var size int64
	for {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		// CopyN between two files lets the kernel copy, or share, the blocks.
		n, err := io.CopyN(out, in, chunk)
		size += n
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if size > from.info.Size() {
			return errChanged // somebody may be appending as fast as we read
		}
	}
	after, err := in.Stat()
	if err != nil {
		return err
	}
	if !unchanged(from.info, after) || size != after.Size() {
		return errChanged
	}
	if err := out.Chmod(after.Mode().Perm()); err != nil {
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	if err := to.dir.Chtimes(temp, time.Time{}, after.ModTime()); err != nil {
		return err
	}
	return install(ctx, temp, to)
}

// makeLink makes a symbolic link, by way of a temporary one because a link cannot be overwritten.
func (s *syncer) makeLink(ctx context.Context, target string, to place) error {
	temp := s.tempName()
	if err := to.dir.Symlink(target, temp); err != nil {
		return err
	}
	if err := install(ctx, temp, to); err != nil {
		to.dir.Remove(temp)
		return err
	}
	return nil
}

// install moves a finished temporary file to its target. A rename replaces a file or a link at
// one stroke; only a directory has to be taken away first.
func install(ctx context.Context, temp string, to place) error {
	if to.info != nil && to.info.IsDir() {
		if err := removeTree(ctx, to.dir, to.name); err != nil {
			return err
		}
	}
	return to.dir.Rename(temp, to.name)
}

// removeTree removes a file, a link (not what it leads to) or a directory with all that it holds,
// directories that may not be written to included. When ctx ends it stops with a part removed.
func removeTree(ctx context.Context, dir *os.Root, name string) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	removed := dir.Remove(name) // unless it is a directory that holds something
	if removed == nil || errors.Is(removed, fs.ErrNotExist) {
		return nil
	}
	info, err := dir.Lstat(name)
	if err != nil || !info.IsDir() {
		return removed
	}
	if err := emptyDir(ctx, place{dir: dir, name: name, info: info}); err != nil {
		return err
	}
	return dir.Remove(name)
}

// emptyDir removes all that a directory holds.
func emptyDir(ctx context.Context, p place) error {
	if p.info.Mode()&0o700 != 0o700 {
		if err := p.dir.Chmod(p.name, 0o700); err != nil {
			return err
		}
	}
	entries, err := p.list()
	if err != nil {
		return err
	}
	d, err := openDir(p.dir, p.name)
	if err != nil {
		return err
	}
	defer d.Close()
	for _, e := range entries {
		if err := removeTree(ctx, d, e.Name()); err != nil {
			return err
		}
	}
	return nil
}
