package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"testing"
)

// countdown is a context that ends when it has been asked n times.
type countdown struct {
	context.Context
	n *int
}

func (c countdown) Err() error {
	if *c.n--; *c.n < 0 {
		return context.Canceled
	}
	return nil
}

// Ctrl-C does not wait until a large directory is removed. The next run removes the rest.
func TestRemovalIsInterrupted(t *testing.T) {
	_, dst := newDirs(t)
	dst.mkdir("old/sub")
	for i := range 100 {
		dst.file(fmt.Sprintf("old/sub/%02d", i), "x")
	}
	root, err := os.OpenRoot(dst.path)
	dst.must(err)
	defer root.Close()
	n := 50
	if err := removeTree(countdown{t.Context(), &n}, root, "old"); !errors.Is(err, context.Canceled) {
		t.Errorf("removeTree returned %v", err)
	}
	rest, err := os.ReadDir(dst.at("old/sub"))
	dst.must(err)
	if len(rest) < 50 || len(rest) > 60 {
		t.Errorf("%d files of 100 are left", len(rest))
	}
	dst.chmod("old/sub", 0o500)
	dst.must(removeTree(t.Context(), root, "old"))
	if _, err := os.Lstat(dst.at("old")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("old is still there: %v", err)
	}
}
