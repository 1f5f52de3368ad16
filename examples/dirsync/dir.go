package main

import (
	"os"
	"path"
	"time"
)

// syncDir makes DEST have a directory at key, and with list asks for all that belongs in it.
func (s *syncer) syncDir(key string, from, to place, list bool) error {
	if key == "." {
		if err := s.alive(); err != nil {
			return err
		}
	}
	if to.info != nil && to.info.IsDir() {
		if err := s.setDir(key, from, to); err != nil || !list {
			return err
		}
		if s.watch != nil {
			defer s.add(key) // Its time may have changed since, and before it was watched.
		}
		return s.listChildren(key, from, to)
	}
	err := s.change(key, from, to, func() error {
		if to.info != nil { // a file or a link is in the way
			if err := to.dir.Remove(to.name); err != nil {
				return err
			}
		}
		// Ours to write in until it is full, whatever its final mode.
		return to.dir.Mkdir(to.name, from.info.Mode().Perm()|0o700)
	})
	if err != nil {
		return err
	}
	s.rep.made.Add(1)
	s.rep.action("made", key+"/")
	if to.info, err = to.dir.Lstat(to.name); err != nil {
		return err
	}
	// Nobody need have announced the children of a new directory: it may have been filled
	// before it was watched, or moved here with all that it holds. Its own key comes again
	// behind theirs, to set mode and time.
	err = s.listChildren(key, from, to)
	s.add(key)
	return err
}

func (s *syncer) alive() error {
	if err := s.src.alive(); err != nil {
		return err
	}
	return s.dst.alive()
}

// setDir gives a directory its mode and time, unless a worker is changing something inside: it
// could not go on in a directory that has become read-only, and would move the time once more.
// change asks for the directory's key when it is done; the queue merges a thousand of these into
// one.
func (s *syncer) setDir(key string, from, to place) error {
	s.usersMu.Lock()
	defer s.usersMu.Unlock()
	if s.users[key] > 0 {
		return nil
	}
	if perm := from.info.Mode().Perm(); to.info.Mode().Perm() != perm {
		if err := to.dir.Chmod(to.name, perm); err != nil {
			return err
		}
	}
	if t := from.info.ModTime(); !to.info.ModTime().Equal(t) {
		return to.dir.Chtimes(to.name, time.Time{}, t)
	}
	return nil
}

// change runs f, which creates, replaces or removes a name in the directory that holds key. It
// makes that directory writable first, and has it put right again after.
//
// It also looks at SOURCE once more after f. When a directory above is renamed, nobody announces the
// paths inside: they are asked for when the directory is listed. Had the listing found DEST without
// what f was just about to put there, it would stay for good.
func (s *syncer) change(key string, from, to place, f func() error) error {
	dir := path.Dir(key)
	defer s.add(dir)
	if err := s.enter(dir, to.dir); err != nil {
		return err
	}
	defer s.leave(dir)
	if err := f(); err != nil {
		return err
	}
	now, err := s.src.at(key)
	defer now.close()
	same := err == nil && now.info != nil && from.info != nil && os.SameFile(now.info, from.info)
	if neither := now.info == nil && from.info == nil; !same && !neither {
		s.list(key)
	}
	return nil
}

func (s *syncer) enter(dir string, d *os.Root) error {
	s.usersMu.Lock()
	defer s.usersMu.Unlock()
	info, err := d.Stat(".")
	if err != nil {
		return err
	}
	if perm := info.Mode().Perm(); perm&0o300 != 0o300 {
		if err := d.Chmod(".", perm|0o700); err != nil {
			return err
		}
	}
	s.users[dir]++
	return nil
}

func (s *syncer) leave(dir string) {
	s.usersMu.Lock()
	defer s.usersMu.Unlock()
	if s.users[dir]--; s.users[dir] == 0 {
		delete(s.users, dir)
	}
}

// finishDirs gives directories their mode and time when the queue has been shut down and their keys
// are not handed out any more. It returns the keys for which there is more to do.
func (s *syncer) finishDirs(keys []string) (rest []string) {
	for _, key := range keys {
		s.mu.Lock()
		_, list := s.unlisted[key]
		s.mu.Unlock()
		if list || !s.finishDir(key) {
			rest = append(rest, key)
		}
	}
	return rest
}

func (s *syncer) finishDir(key string) bool {
	from, err := s.src.at(key)
	defer from.close()
	if err != nil || from.info == nil || !from.info.IsDir() {
		return false
	}
	to, err := s.dst.at(key)
	defer to.close()
	return err == nil && to.info != nil && to.info.IsDir() && s.setDir(key, from, to) == nil
}

// listChildren asks for every path that either side has directly inside a directory, and has the
// directories among them listed in their turn.
func (s *syncer) listChildren(key string, from, to place) (err error) {
	defer func() {
		if err != nil {
			s.unlist(key) // the retry has to list it
		}
	}()
	if s.watch != nil {
		s.watch(key) // before listing: what is created in between is seen twice, not missed
	}
	inSource, err := from.list()
	if err != nil {
		return err
	}
	inDest, err := to.list()
	if err != nil {
		return err
	}
	if key == "." {
		s.rep.seen.Add(1)
	}
	names := make(map[string]struct{}, len(inSource))
	for _, e := range inSource {
		child := path.Join(key, e.Name())
		if isTemp(child) {
			continue // of a dirsync that writes here; not ours to spread
		}
		names[e.Name()] = struct{}{}
		s.rep.seen.Add(1)
		if e.IsDir() {
			s.list(child)
		} else {
			s.add(child)
		}
	}
	for _, e := range inDest {
		if _, ok := names[e.Name()]; !ok {
			s.rep.seen.Add(1)
			s.add(path.Join(key, e.Name()))
		}
	}
	return nil
}
