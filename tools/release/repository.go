package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
)

const rootPath = "github.com/keyedqueue/workqueue"

// unpublished are the directories of modules that are not imported. They get versions, so that all go.mod files agree,
// but no tags.
var unpublished = []string{"debug/e2e", "peers", "peers/kubernetes", "tools"}

// repository is a checkout of this project.
type repository struct {
	dir     string
	modules []*nested // The root first, and each module after those that it requires.
}

// nested is a module of the repository.
type nested struct {
	dir       string // Relative to the repository, with slashes; empty for the root.
	path      string
	published bool
	requires  []string // Modules of this repository.
}

// tag is how the go command finds a version of the module.
func (m *nested) tag(version string) string { return path.Join(m.dir, version) }

func open(dir string) (*repository, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	r := &repository{dir: dir}
	files, err := r.git("ls-files", "go.mod", "*/go.mod")
	if err != nil {
		return nil, err
	}
	unordered := map[string]*nested{}
	for _, name := range strings.Fields(files) {
		file, err := r.parse(name)
		if err != nil {
			return nil, err
		}
		m := &nested{dir: strings.TrimSuffix(path.Dir(name), "."), path: file.Module.Mod.Path}
		m.published = !slices.Contains(unpublished, m.dir)
		for _, require := range file.Require {
			if isOurs(require.Mod.Path) {
				m.requires = append(m.requires, require.Mod.Path)
			}
		}
		if want := path.Join(rootPath, m.dir); m.path != want {
			return nil, fmt.Errorf("%s: the module's path is %s, want %s", name, m.path, want)
		}
		unordered[m.path] = m
	}
	return r, r.order(unordered)
}

// order fills r.modules. It takes whatever has all its requirements there, until nothing is left.
func (r *repository) order(unordered map[string]*nested) error {
	taken := map[string]bool{}
	for len(r.modules) < len(unordered) {
		before := len(r.modules)
		for _, m := range sorted(unordered) {
			if !taken[m.path] && !slices.ContainsFunc(m.requires, func(p string) bool { return !taken[p] }) {
				taken[m.path] = true
				r.modules = append(r.modules, m)
			}
		}
		if len(r.modules) == before {
			return fmt.Errorf("modules require each other in a circle, or one that is not here")
		}
	}
	return nil
}

func sorted(modules map[string]*nested) []*nested {
	var list []*nested
	for _, m := range modules {
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b *nested) int { return strings.Compare(a.path, b.path) })
	return list
}

// published returns the modules that get tags.
func (r *repository) published() []*nested {
	return slices.DeleteFunc(slices.Clone(r.modules), func(m *nested) bool { return !m.published })
}

func isOurs(p string) bool { return p == rootPath || strings.HasPrefix(p, rootPath+"/") }

func (r *repository) parse(name string) (*modfile.File, error) {
	data, err := os.ReadFile(filepath.Join(r.dir, name))
	if err != nil {
		return nil, err
	}
	return modfile.Parse(name, data, nil)
}

// edit changes the go.mod file of a module.
func (r *repository) edit(m *nested, change func(*modfile.File) error) error {
	name := path.Join(m.dir, "go.mod")
	file, err := r.parse(name)
	if err != nil {
		return err
	}
	if err := change(file); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	file.Cleanup()
	data, err := file.Format()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.dir, name), data, 0o644)
}

// git runs a git command in the repository and returns what it prints.
func (r *repository) git(args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = r.dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w\n%s", strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}

// at names a version of the module.
func (m *nested) at(version string) module.Version {
	return module.Version{Path: m.path, Version: version}
}
