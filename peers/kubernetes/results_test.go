package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const testOutput = `{"Action":"start","Package":"p"}
{"ImportPath":"p","Action":"build-output","Output":"# p\n"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"--- PASS: TestA (0.00s)\n"}
{"Action":"pass","Package":"p","Test":"TestA/one","Elapsed":0}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":0}
{"Action":"skip","Package":"p","Test":"TestB","Elapsed":0}
{"Action":"fail","Package":"p","Test":"TestC","Elapsed":0}
{"Action":"fail","Package":"p","Elapsed":0.1}
`

const specsOutput = `[{"SpecReports":[
	{"ContainerHierarchyTexts":null,"LeafNodeType":"BeforeSuite","LeafNodeText":"","State":"passed"},
	{"ContainerHierarchyTexts":["queue"],"LeafNodeType":"It","LeafNodeText":"adds","State":"passed"},
	{"ContainerHierarchyTexts":["queue"],"LeafNodeType":"It","LeafNodeText":"adds","State":"panicked"},
	{"ContainerHierarchyTexts":["queue","late"],"LeafNodeType":"It","LeafNodeText":"gets","State":"pending"}]}]`

func TestReadResults(t *testing.T) {
	r, err := readResults(strings.NewReader(testOutput))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "specs.json")
	if err := os.WriteFile(file, []byte(specsOutput), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := r.addSpecs(file); err != nil {
		t.Fatal(err)
	}
	if err := r.addSpecs(file + " that is not there"); err != nil {
		t.Error(err)
	}
	want := results{
		"TestA": "pass", "TestA/one": "pass", "TestB": "skip", "TestC": "fail", wholePackage: "fail",
		"spec: queue / adds": "pass", "spec: queue / adds #2": "fail", "spec: queue / late / gets": "skip",
	}
	if d := r.differences(want); len(d) > 0 {
		t.Errorf("got %v, want %v", r, want)
	}
	if n := r.count("fail"); n != 2 {
		t.Errorf("%d tests failed, want 2", n)
	}
}

func TestDifferences(t *testing.T) {
	stock := results{"TestA": "pass", "TestB/x": "pass", "TestC": "fail", wholePackage: "pass"}
	swapped := results{"TestA": "pass", "TestB/x": "fail", "TestC": "fail", "TestD": "skip",
		wholePackage: "fail"}
	list := stock.differences(swapped)
	var lines []string
	for _, d := range list {
		lines = append(lines, d.String())
	}
	want := []string{
		"(package): stock pass, swapped fail", "TestB/x: stock pass, swapped fail",
		"TestD: stock missing, swapped skip",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("got %q, want %q", lines, want)
	}
	if got, want := rerunPattern(list), "^(TestB|TestD)$"; got != want {
		t.Errorf("the pattern is %s, want %s", got, want)
	}
	if got := rerunPattern(append(list, difference{test: "spec: a / b"})); got != "." {
		t.Errorf("with a spec the pattern is %s, want all tests", got)
	}

	b := list[1]
	b.see(results{"TestB/x": "pass"}, results{"TestB/x": "fail"})
	if b.flaky() {
		t.Errorf("%v is not flaky", &b)
	}
	b.see(results{"TestB/x": "fail"}, results{"TestB/x": "fail"})
	if !b.flaky() {
		t.Errorf("%v is flaky", &b)
	}
	if got, want := b.String(), "TestB/x: stock pass and fail, swapped fail"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestChoose(t *testing.T) {
	all := []testPackage{{path: "k8s.io/client-go/rest"}, {path: "k8s.io/kubernetes/test/integration"},
		{path: "k8s.io/kubernetes/pkg"}}
	chosen, err := choose(all, "^k8s.io/kubernetes", "/test/")
	if err != nil || len(chosen) != 1 || chosen[0].path != "k8s.io/kubernetes/pkg" {
		t.Errorf("chose %v, %v", chosen, err)
	}
	if chosen, err := choose(all, "no/such/package", ""); err == nil {
		t.Errorf("chose %v, want an error", chosen)
	}
	if chosen, err := choose(all, ".", ""); err != nil || len(chosen) != 3 {
		t.Errorf("chose %v, %v", chosen, err)
	}
}
