package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/tools/go/packages"
)

// forward replaces the copy's util/workqueue with a package in which every name stands for the queue's, and returns these
// names. Whether the queue's types and functions are the same is left to the compiler.
func (p *program) forward() (names []string, err error) {
	client, queue, err := p.load()
	if err != nil {
		return nil, err
	}
	source := forwarder{imports: map[string]string{}}
	var problems []error
	for _, name := range client.Types.Scope().Names() {
		theirs := client.Types.Scope().Lookup(name)
		if !theirs.Exported() {
			continue
		}
		names = append(names, name)
		if queue.Types.Scope().Lookup(name) == nil {
			problems = append(problems, fmt.Errorf("%s is not in this version of %s: try a newer -version", name, queuePath))
			continue
		}
		problems = append(problems, source.add(theirs))
	}
	if client.Types.Scope().Lookup("TypedInterface") == nil {
		problems = append(problems, errors.New("it has no typed queues: swap needs client-go v0.31 or newer"))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return names, p.replacePackage(source.file())
}

// load returns client-go's own workqueue, which the copy still has, and the queue.
func (p *program) load() (client, queue *packages.Package, err error) {
	config := &packages.Config{
		Mode:       packages.LoadTypes,
		Dir:        p.root,
		Env:        append(os.Environ(), "GOWORK=off"),
		BuildFlags: p.swappedFlags(),
	}
	loaded, err := packages.Load(config, workqueuePath, queuePath)
	if err != nil {
		return nil, nil, err
	}
	for _, pkg := range loaded {
		for _, err := range pkg.Errors {
			return nil, nil, fmt.Errorf("loading %s: %w", pkg.PkgPath, err)
		}
		switch pkg.PkgPath {
		case workqueuePath:
			client = pkg
		case queuePath:
			queue = pkg
		}
	}
	if client == nil || queue == nil {
		return nil, nil, errors.New("cannot load " + workqueuePath + " and " + queuePath)
	}
	return client, queue, nil
}

// replacePackage writes the generated file in the place of all Go files of the copy's util/workqueue. Its tests go too:
// they test what is no longer there.
func (p *program) replacePackage(forward []byte) error {
	dir := filepath.Join(p.root, dirName, "client-go", "util", "workqueue")
	old, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return err
	}
	for _, name := range old {
		if err := os.Remove(name); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "forward.go"), forward, 0o644)
}
