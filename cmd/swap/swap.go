package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// mark is the first line of swap.mod and of .swap/.gitignore. Swap overwrites and removes only what has it.
const mark = "Written by github.com/keyedqueue/workqueue/cmd/swap; swap -remove removes it."

// queueModule is the queue that takes client-go's place.
type queueModule struct {
	version string // As in a go.mod file, or "latest".
	dir     string // A checkout that replaces the version, or empty.
}

func (q queueModule) String() string {
	if q.dir != "" {
		return queuePath + " in " + q.dir
	}
	return queuePath + " " + q.version
}

// A result describes a swapped program.
type result struct {
	*program
	clientGo *module
	queue    queueModule
	names    []string // What client-go's workqueue exports.
	changed  []string // Modules whose versions differ from those that go.mod asks for.
	notes    []string
}

// swap writes swap.mod, swap.sum and .swap. When it fails it leaves none of them behind.
func (p *program) swap(queue queueModule) (_ *result, err error) {
	if err := p.remove(); err != nil {
		return nil, err
	}
	r := &result{program: p, queue: queue}
	if r.clientGo, err = p.clientGo(); err != nil {
		return nil, err
	}
	before, err := p.modules(p.unswapped())
	if err != nil {
		return nil, err
	}
	if _, imported := before[workqueuePath]; !imported {
		r.notes = append(r.notes,
			"no package or test of this module imports "+workqueuePath+", itself or through another package.")
	}

	defer func() {
		if err != nil {
			err = errors.Join(err, p.remove())
		}
	}()
	if r.queue, err = p.resolve(queue); err != nil {
		return nil, err
	}
	if err := p.copyClientGo(r.clientGo.Dir, r.queue.version); err != nil {
		return nil, err
	}
	notes, err := p.writeModFile(r.queue)
	if err != nil {
		return nil, err
	}
	r.notes = append(r.notes, notes...)
	// Now the program builds with the copy, which is still client-go's own code. From here on go completes
	// swap.mod and swap.sum, for the queue and for what it needs.
	if _, err := p.swapped().run("list", "-deps", queuePath); err != nil {
		return nil, err
	}
	if r.names, err = p.forward(); err != nil {
		return nil, fmt.Errorf("%s: %w", r.clientGo, err)
	}
	if _, err := p.swapped().run("build", workqueuePath); err != nil {
		return nil, fmt.Errorf("%s: %w", r.clientGo, err)
	}
	after, err := p.modules(p.swapped())
	if err != nil {
		return nil, err
	}
	r.changed = changed(before, after)
	for _, find := range []func() (string, error){p.newerGo, p.providerNote} {
		if note, err := find(); err != nil {
			return nil, err
		} else if note != "" {
			r.notes = append(r.notes, note)
		}
	}
	return r, nil
}

// resolve returns queue with the version that swap.mod must require.
func (p *program) resolve(queue queueModule) (queueModule, error) {
	if queue.dir != "" {
		queue.version = "v0.0.0-00010101000000-000000000000" // The go command's own word for a replaced module.
		return queue, nil
	}
	// Outside the module: its replace directives and its vendor directory do not matter.
	out, err := goCommand{dir: os.TempDir(), env: []string{"GOWORK=off", "GOFLAGS=-mod=mod"}}.
		run("list", "-m", "-f", "{{.Version}}", queuePath+"@"+queue.version)
	queue.version = strings.TrimSpace(string(out))
	return queue, err
}

// copyClientGo copies client-go to .swap/client-go and lets it require the queue.
func (p *program) copyClientGo(from, version string) error {
	dir := filepath.Join(p.root, dirName)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, ".gitignore"), []byte("# "+mark+"\n*\n"), 0o644); err != nil {
		return err
	}
	to := filepath.Join(dir, "client-go")
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return err
	}
	// Files of the module cache cannot be written, and so neither replaced nor removed.
	err := filepath.WalkDir(to, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return os.Chmod(path, 0o755)
		}
		return os.Chmod(path, 0o644)
	})
	if err != nil {
		return err
	}
	gomod := filepath.Join(to, "go.mod")
	file, err := parseModFile(gomod)
	if err != nil {
		return err
	}
	if err := file.AddRequire(queuePath, version); err != nil {
		return err
	}
	return writeFormatted(file, gomod, "")
}

func (p *program) remove() error {
	for name, marked := range map[string]string{modName: modName, sumName: modName,
		dirName: filepath.Join(dirName, ".gitignore")} {
		path := filepath.Join(p.root, name)
		if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
			continue
		}
		data, err := os.ReadFile(filepath.Join(p.root, marked))
		if err != nil || !strings.Contains(string(data), mark) {
			return fmt.Errorf("%s exists, and swap did not write it: move it away", path)
		}
	}
	for _, name := range []string{sumName, dirName, modName} {
		if err := os.RemoveAll(filepath.Join(p.root, name)); err != nil {
			return err
		}
	}
	return nil
}
