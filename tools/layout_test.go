package tools_test

import (
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// goFiles returns the Go files of the repository by folder, without those of testdata.
func goFiles(t *testing.T) map[string][]string {
	t.Helper()
	byDir := map[string][]string{}
	for _, name := range files(t, ".go") {
		if !strings.Contains(name, "testdata/") {
			byDir[path.Dir(name)] = append(byDir[path.Dir(name)], path.Base(name))
		}
	}
	return byDir
}

func isTest(name string) bool { return strings.HasSuffix(name, "_test.go") }

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// moduleOf returns the folder of the module to which a folder belongs.
func moduleOf(dir string) string {
	for dir != "." && !exists(path.Join(dir, "go.mod")) {
		dir = path.Dir(dir)
	}
	return dir
}

var (
	contributingMap = regexp.MustCompile(`(?s)\n## Where things live\n(.*?)\n## `)
	firstCells      = regexp.MustCompile(`(?m)^\|([^|]*)\|`)
	inBackticks     = regexp.MustCompile("`([^`]+)`")
)

// The map of CONTRIBUTING.md lists every package of the root and every other module, and nothing that does
// not exist.
func TestMapOfTheTree(t *testing.T) {
	section := contributingMap.FindStringSubmatch(read(t, ".github/CONTRIBUTING.md"))
	if section == nil {
		t.Fatal(`CONTRIBUTING.md has no section "Where things live" any more`)
	}
	listed := map[string]bool{}
	for _, cell := range firstCells.FindAllStringSubmatch(section[1], -1) {
		for _, name := range inBackticks.FindAllStringSubmatch(cell[1], -1) {
			if listed[name[1]] = true; !exists(name[1]) {
				t.Errorf("CONTRIBUTING.md, Where things live: %s does not exist", name[1])
			}
		}
	}
	for dir := range goFiles(t) {
		name := dir
		if module := moduleOf(dir); module != "." {
			name = module
		}
		if name != "." && !listed[name] {
			t.Errorf("CONTRIBUTING.md, Where things live: no row begins with %s", name)
		}
	}
}

// Files that stand at the top, because those who know client-go look for them there.
func TestFilesAtTheTop(t *testing.T) {
	for name := range strings.FieldsSeq(`go.mod go.sum queue.go delaying_queue.go rate_limiting_queue.go default_rate_limiters.go
		metrics.go heap.go queue_test.go delaying_queue_test.go rate_limiters_test.go bench_test.go README.md LICENSE`) {
		if !exists(name) {
			t.Errorf("%s is not there", name)
		}
	}
}

// Modules that users upgrade by themselves import no internal package: those may change in any release of the
// root.
func TestSubmodulesUseExportedNames(t *testing.T) {
	for dir, names := range goFiles(t) {
		if !slices.Contains([]string{"controllerruntime", "otel", "redisqueue", "sharding"}, moduleOf(dir)) {
			continue
		}
		for _, name := range names {
			if !isTest(name) && strings.Contains(read(t, path.Join(dir, name)), `"`+module+`/internal/`) {
				t.Errorf("%s/%s imports an internal package of the root", dir, name)
			}
		}
	}
}

func TestRootNeedsNoClientGo(t *testing.T) {
	for _, name := range []string{"go.mod", "go.sum"} {
		if strings.Contains(read(t, name), "k8s.io/client-go") {
			t.Errorf("%s names client-go", name)
		}
	}
}

// A test file is named after a source file: x_test.go or x_<what>_test.go for x.go. Every package may also
// have examples, benchmarks, and what its tests share. Packages without other sources than doc.go, which are
// tests alone, are free.
func TestNamesOfTestFiles(t *testing.T) {
	free := regexp.MustCompile(`^(example|example_\w+|bench|helpers|export)_test\.go$`)
	for dir, names := range goFiles(t) {
		var sources []string
		for _, name := range names {
			if !isTest(name) && name != "doc.go" {
				sources = append(sources, strings.TrimSuffix(name, ".go")+"_")
			}
		}
		if len(sources) == 0 {
			continue
		}
		for _, name := range names {
			isOf := func(source string) bool { return strings.HasPrefix(name, source) }
			clientGos := dir == "." && name == "rate_limiters_test.go" // also there without a source of that name
			if isTest(name) && !free.MatchString(name) && !clientGos && !slices.ContainsFunc(sources, isOf) {
				t.Errorf("%s/%s is not named after a source file", dir, name)
			}
		}
	}
}

// Packages that have longer lines yet.
var longLines = strings.Fields(`examples peers`)

// A line of Go outside of tests has at most 110 characters, unless it is the signature of a function.
func TestLengthOfLines(t *testing.T) {
	const most = 110
	for dir, names := range goFiles(t) {
		first, _, _ := strings.Cut(dir, "/")
		if slices.Contains(longLines, first) {
			continue
		}
		for _, name := range names {
			if isTest(name) {
				continue
			}
			n := 0
			for line := range strings.Lines(read(t, path.Join(dir, name))) {
				n++
				if length := utf8.RuneCountInString(strings.TrimRight(line, "\r\n")); length > most &&
					!strings.HasPrefix(line, "func ") {
					t.Errorf("%s/%s:%d has %d characters", dir, name, n, length)
				}
			}
		}
	}
}

// Each package says in its package comment what it holds.
func TestPackageComments(t *testing.T) {
	for dir, names := range goFiles(t) {
		has := slices.ContainsFunc(names, func(name string) bool {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, dir, name), nil,
				parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			return file.Doc != nil
		})
		if !has {
			t.Errorf("%s has no package comment", dir)
		}
	}
}
