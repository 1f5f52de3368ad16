package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/tools/go/packages"
)

// api is what client-go's workqueue exports.
type api struct {
	forwarded []string // Stands for the queue's name now.
	kept      []string // Still client-go's own.
}

// forward replaces the copy's util/workqueue with a package that forwards to the queue.
func (p *program) forward() (*api, error) {
	client, queue, err := p.load()
	if err != nil {
		return nil, err
	}
	a := &api{}
	var source forwarder
	keep := keeper{client: client, queue: queue.Types}
	var problems []error
	for _, name := range client.Types.Scope().Names() {
		theirs := client.Types.Scope().Lookup(name)
		if !theirs.Exported() {
			continue
		}
		ours := queue.Types.Scope().Lookup(name)
		if ours == nil {
			a.kept = append(a.kept, name)
			problems = append(problems, keep.add(theirs))
			continue
		}
		a.forwarded = append(a.forwarded, name)
		if err := compare(ours, theirs); err != nil {
			problems = append(problems, err)
			continue
		}
		problems = append(problems, source.add(theirs))
	}
	if len(a.forwarded) == 0 {
		problems = append(problems, errors.New("its util/workqueue exports nothing that the queue has"))
	} else if client.Types.Scope().Lookup("TypedInterface") == nil {
		problems = append(problems, errors.New("it has no typed queues: swap needs client-go v0.31 or newer"))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return a, p.replacePackage(source.file(), keep.file())
}

// load returns client-go's own workqueue, which the copy still has, and the queue.
func (p *program) load() (client, queue *packages.Package, err error) {
	config := &packages.Config{
		Mode:       packages.LoadSyntax | packages.NeedModule,
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

// replacePackage writes the generated files in the place of all Go files of the copy's util/workqueue. Its tests go
// too: they test what is no longer there.
func (p *program) replacePackage(forward, kept []byte) error {
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
	if err := os.WriteFile(filepath.Join(dir, "forward.go"), forward, 0o644); err != nil {
		return err
	}
	if kept == nil {
		return nil
	}
	return os.WriteFile(filepath.Join(dir, "kept.go"), kept, 0o644)
}
