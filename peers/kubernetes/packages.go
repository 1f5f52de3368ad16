package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

const (
	clientGo          = "k8s.io/client-go"
	workqueuePath     = clientGo + "/util/workqueue"
	controllerRuntime = "sigs.k8s.io/controller-runtime"
)

// libraries are the modules whose tests run wherever a work queue is linked into them, even if only by way of
// another package.
var libraries = []string{clientGo, controllerRuntime, "k8s.io/sample-controller"}

// A testPackage is a package whose tests are run on both queues.
type testPackage struct {
	path   string
	ginkgo bool // Its tests are specs.
}

// listed is what go list reports about a package.
type listed struct {
	ImportPath                         string
	Imports, TestImports, XTestImports []string
	TestGoFiles, XTestGoFiles, Deps    []string
}

func (l *listed) imports(path string) bool {
	return slices.Contains(l.Imports, path) || slices.Contains(l.TestImports, path) ||
		slices.Contains(l.XTestImports, path)
}

// packagesWithQueue returns the packages that have tests and a work queue: from Kubernetes' modules those
// that import client-go's workqueue, and from the libraries those with it among their tests' dependencies.
// That package itself is left out: its tests look into the stock queue, and swap replaces them.
func packagesWithQueue(ctx context.Context) ([]testPackage, error) {
	withQueue := map[string]bool{}
	var patterns []string
	for _, library := range libraries {
		patterns = append(patterns, library+"/...")
	}
	err := list(ctx, append([]string{"-test", "-json=ImportPath,Deps"}, patterns...), func(l *listed) {
		if path, ok := strings.CutSuffix(l.ImportPath, ".test"); ok && slices.Contains(l.Deps, workqueuePath) {
			withQueue[path] = true
		}
	})
	if err != nil {
		return nil, err
	}
	var found []testPackage
	fields := "-json=ImportPath,Imports,TestImports,XTestImports,TestGoFiles,XTestGoFiles"
	err = list(ctx, []string{fields, "k8s.io/...", controllerRuntime + "/..."}, func(l *listed) {
		hasTests := len(l.TestGoFiles)+len(l.XTestGoFiles) > 0
		if hasTests && l.ImportPath != workqueuePath && (withQueue[l.ImportPath] || l.imports(workqueuePath)) {
			found = append(found, testPackage{l.ImportPath, l.imports("github.com/onsi/ginkgo/v2")})
		}
	})
	slices.SortFunc(found, func(a, b testPackage) int { return strings.Compare(a.path, b.path) })
	return found, err
}

// list calls f for each package that go list reports.
func list(ctx context.Context, args []string, f func(*listed)) error {
	// With -e: some packages need modules that this go.sum lacks.
	cmd := stock.goCommand(ctx, "list", append([]string{"-e"}, args...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	decoder := json.NewDecoder(out)
	for {
		l := &listed{}
		if err := decoder.Decode(l); err == io.EOF {
			break
		} else if err != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			return fmt.Errorf("%s: %w", cmd, err)
		}
		f(l)
	}
	return cmd.Wait()
}

// choose returns the packages whose paths match want, unless they match skip. None at all is an error.
func choose(all []testPackage, want, skip string) (chosen []testPackage, err error) {
	wanted, err := regexp.Compile(want)
	if err != nil {
		return nil, err
	}
	skipped, err := regexp.Compile(skip)
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		if wanted.MatchString(p.path) && (skip == "" || !skipped.MatchString(p.path)) {
			chosen = append(chosen, p)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("-packages %q and -skip %q leave none of the %d packages", want, skip, len(all))
	}
	return chosen, nil
}
