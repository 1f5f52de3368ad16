package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

var (
	// errNoParent: a directory above the path is missing, or is not a directory of its own.
	errNoParent = errors.New("the directory that should hold it is not there yet")
	// errGone: SOURCE or DEST itself is no longer what it was at the start. Nothing can be
	// concluded from what is or is not found below it, so the program stops.
	errGone = errors.New("is no longer the directory it was at the start")

	errNotDir = errors.New("not a directory")
)

// A tree is one side of the synchronisation. Everything below it is reached through os.Root, one
// path element at a time, and no element may be a symbolic link: whoever can write into either
// directory must not be able to point dirsync anywhere else, not even at another part of the
// same tree.
type tree struct {
	path string // absolute, free of links
	root *os.Root
	id   fs.FileInfo // what path named when it was opened
}

func openTree(path string) (*tree, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	id, err := root.Stat(".")
	if err != nil {
		root.Close()
		return nil, err
	}
	return &tree{path: path, root: root, id: id}, nil
}

func (t *tree) close() { t.root.Close() }

// alive reports whether the tree's path still names the directory that was opened. A directory
// that was deleted, renamed or covered by a mount keeps answering through its open handle, often
// as if it were empty. Taking that for "every file was deleted" would empty the other side.
func (t *tree) alive() error {
	now, err := os.Lstat(t.path)
	if err != nil {
		return fmt.Errorf("%q %w: %w", t.path, errGone, err)
	}
	if !os.SameFile(now, t.id) {
		return fmt.Errorf("%q %w", t.path, errGone)
	}
	return nil
}

// A place is one path of a tree: the directory that holds it, kept open so that later steps act
// on the same directory whatever happens to its name, and what was there when it was looked at.
type place struct {
	dir  *os.Root
	name string      // in dir; "." for the tree itself
	info fs.FileInfo // nil: nothing is there
}

// at looks at key. The caller closes the place, also after an error.
func (t *tree) at(key string) (place, error) {
	dir, err := t.root.OpenRoot(".")
	if err != nil {
		return place{}, err
	}
	name, rest, more := strings.Cut(key, "/")
	for more {
		next, err := openDir(dir, name)
		dir.Close()
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotDir) {
			return place{}, errNoParent
		}
		if err != nil {
			return place{}, err
		}
		dir = next
		name, rest, more = strings.Cut(rest, "/")
	}
	p := place{dir: dir, name: name}
	p.info, err = dir.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		p.info, err = nil, nil
	}
	return p, err
}

func (p place) close() {
	if p.dir != nil {
		p.dir.Close()
	}
}

// list reads the directory at p.
func (p place) list() ([]fs.DirEntry, error) {
	d, err := openDir(p.dir, p.name)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	f, err := d.Open(".")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.ReadDir(-1)
}

// openDir opens a directory inside dir, and nothing but a directory. os.Root would follow a link
// that stays inside dir, hence the look before; the comparison after notices when a link was put
// there in between.
func openDir(dir *os.Root, name string) (*os.Root, error) {
	before, err := dir.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !before.IsDir() {
		return nil, errNotDir
	}
	d, err := dir.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	after, err := d.Stat(".")
	if err == nil && !os.SameFile(before, after) {
		err = errNotDir
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// resolveSource and resolveDest turn the two arguments into absolute paths without links, so that
// the trees can be told apart and compared.
func resolveSource(arg string) (string, error) {
	p, err := resolve(arg)
	if err != nil {
		return "", fmt.Errorf("SOURCE: %w", err)
	}
	if info, err := os.Stat(p); err != nil {
		return "", fmt.Errorf("SOURCE: %w", err)
	} else if !info.IsDir() {
		return "", fmt.Errorf("SOURCE: %q is not a directory", arg)
	}
	return p, nil
}

// resolveDest also accepts a directory that is yet to be created.
func resolveDest(arg string) (string, error) {
	p, err := resolve(arg)
	if err == nil {
		if info, err := os.Stat(p); err != nil {
			return "", fmt.Errorf("DEST: %w", err)
		} else if !info.IsDir() {
			return "", fmt.Errorf("DEST: %q is not a directory", arg)
		}
		return p, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("DEST: %w", err)
	}
	arg = strings.TrimRight(arg, string(filepath.Separator))
	if _, err := os.Lstat(arg); err == nil {
		return "", fmt.Errorf("DEST: %q is a link to nothing", arg)
	}
	above, base := filepath.Split(arg)
	if base == "" || base == "." || base == ".." {
		return "", fmt.Errorf("DEST: %w", err)
	}
	if above == "" {
		above = "."
	}
	above, err = resolveDest(above)
	return filepath.Join(above, base), err
}

// resolve does not clean the path first: "link/.." is what the link's target lies in, not ".".
func resolve(arg string) (string, error) {
	if arg == "" {
		return "", errors.New("empty path")
	}
	if !filepath.IsAbs(arg) {
		wd, err := os.Getwd()
		if err != nil {
			return "", err
		}
		arg = wd + string(filepath.Separator) + arg
	}
	return filepath.EvalSymlinks(arg)
}

// shortPaths removes what means nothing from the path in err: the tree's own handle is opened as ".", and files that
// are opened through it have names like "/source/./file".
func shortPaths(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		p.Path = filepath.Clean(p.Path)
	}
	return err
}

// checkApart refuses two directories of which one holds the other. It compares the directories
// themselves, not their names: a bind mount or a file system that ignores case has many names for
// one directory.
func checkApart(source, dest string) error {
	switch {
	case holds(source, dest) && holds(dest, source):
		return errors.New("SOURCE and DEST are the same directory")
	case holds(source, dest):
		return errors.New("DEST lies inside SOURCE: it would be copied into itself without end")
	case holds(dest, source):
		return errors.New("SOURCE lies inside DEST: it would be removed as something that SOURCE does not have")
	}
	return nil
}

// checkNotEmpty refuses to empty DEST to begin with. SOURCE may be the place of a disk that is not
// mounted.
func checkNotEmpty(source, dest string) error {
	inSource, err := os.ReadDir(source)
	if err != nil {
		return fmt.Errorf("SOURCE: %w", err)
	}
	if len(inSource) > 0 {
		return nil
	}
	if inDest, _ := os.ReadDir(dest); len(inDest) > 0 {
		return errors.New("SOURCE is empty and DEST is not; if that is no mistake, empty DEST yourself")
	}
	return nil
}

// holds reports whether outer is inner or one of the directories above it.
func holds(outer, inner string) bool {
	want, err := os.Stat(outer)
	if err != nil {
		return false // not created yet: nothing is inside
	}
	for p := inner; ; p = filepath.Dir(p) {
		if info, err := os.Stat(p); err == nil && os.SameFile(info, want) {
			return true
		}
		if p == filepath.Dir(p) {
			return false
		}
	}
}
