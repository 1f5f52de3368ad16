package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// long skips a test that compiles Kubernetes' clients, some of them many times.
func long(t *testing.T) {
	t.Helper()
	if os.Getenv("WORKQUEUE_SWAP") != "all" {
		t.Skip("takes minutes: set WORKQUEUE_SWAP=all")
	}
}

// The newest patch of every minor version, beside the two versions of TestProgram.
func TestEveryVersion(t *testing.T) {
	long(t)
	for _, version := range []string{"v0.31.14", "v0.32.13", "v0.33.13", "v0.34.13", "v0.35.10", "v0.36.6"} {
		t.Run(version, func(t *testing.T) { tryProgram(t, version) })
	}
}

// Informers, leader election, and the metrics of component-base and of controller-runtime: the oldest
// versions that can be swapped, and newer ones.
func TestControllers(t *testing.T) {
	long(t)
	for _, test := range []struct{ clientGo, controllerRuntime string }{
		{"v0.31.0", "v0.19.0"}, {"v0.34.13", "v0.22.4"}, {newestClientGo, "v0.25.2"},
	} {
		t.Run(test.clientGo, func(t *testing.T) {
			dir := write(t, read(t, "controllers.txtar"), "CLIENT_GO", test.clientGo,
				"CONTROLLER_RUNTIME", test.controllerRuntime, "QUEUE", queuePath)
			shell(t, dir, "go mod tidy")
			r := swapIn(t, dir)
			t.Log(r)
			shell(t, dir, "go vet -trimpath -modfile=swap.mod ./... && go test -trimpath -modfile=swap.mod ./...")
		})
	}
}

// sample-controller, as it is published: it builds, and its tests have the results that they have without us.
func TestSampleController(t *testing.T) {
	long(t)
	dir := filepath.Join(t.TempDir(), "sample-controller")
	from := strings.TrimSpace(shell(t, t.TempDir(),
		"go mod download -json k8s.io/sample-controller@v0.37.1 | sed -n 's/.*\"Dir\": \"\\(.*\\)\",/\\1/p'"))
	shell(t, ".", "cp -r '"+from+"' '"+dir+"' && chmod -R u+w '"+dir+"'")
	stock := results(t, dir, "go test -trimpath -v ./...")
	r := swapIn(t, dir)
	t.Log(r)
	shell(t, dir,
		"go build -trimpath -modfile=swap.mod -o controller . && ./controller -h 2>&1 | grep -q kubeconfig")
	if swapped := results(t, dir, "go test -trimpath -v -modfile=swap.mod ./..."); len(stock) == 0 ||
		!slices.Equal(stock, swapped) {
		t.Errorf("stock:\n%q\nswapped:\n%q", stock, swapped)
	}
	if modules := shell(t, dir, "go version -m controller"); !strings.Contains(modules, queuePath) {
		t.Errorf("it is built without our queue:\n%s", modules)
	}
}

// results returns the result of each test, in order of the names.
func results(t *testing.T, dir, line string) []string {
	t.Helper()
	found := regexp.MustCompile(`--- (PASS|FAIL|SKIP): \S+`).FindAllString(shell(t, dir, line), -1)
	slices.Sort(found)
	return found
}
