package workqueue_test

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// readTree returns what the map of CONTRIBUTING.md describes: the source files of the root, without tests and doc.go, and
// all packages and modules of their own.
func readTree(t *testing.T) (found []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		name = filepath.ToSlash(name)
		base := path.Base(name)
		if entry.IsDir() {
			if base == "testdata" || strings.HasPrefix(base, ".") {
				return fs.SkipDir
			}
			if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil {
				found = append(found, name)
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(base) != ".go" || strings.HasSuffix(base, "_test.go") || base == "doc.go" {
			return nil
		}
		if dir := path.Dir(name); dir == "." {
			found = append(found, name)
		} else if !slices.Contains(found, dir) {
			found = append(found, dir)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

var (
	contributingMap = regexp.MustCompile(`(?s)\n## Where things live\n(.*?)\n## `)
	inBackticks     = regexp.MustCompile("`([^`]+)`")
)

// readMap returns the files and directories that begin the rows of the map, each with its row.
func readMap(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	section := contributingMap.FindStringSubmatch(string(text))
	if section == nil {
		t.Fatal(`CONTRIBUTING.md has no section "Where things live" any more`)
	}
	listed := make(map[string]string)
	for row := range strings.Lines(section[1]) {
		cells := strings.SplitN(strings.TrimSpace(row), "|", 3)
		if len(cells) < 3 {
			continue
		}
		for _, name := range inBackticks.FindAllStringSubmatch(cells[1], -1) {
			listed[name[1]] = row
		}
	}
	return listed
}

// The map of CONTRIBUTING.md lists every package, module and source file of the root, and nothing else.
func TestMapOfTheTree(t *testing.T) {
	tree, listed := readTree(t), readMap(t)
	for _, name := range tree {
		if _, ok := listed[name]; !ok {
			t.Errorf("CONTRIBUTING.md, Where things live: no row names %s.\n"+
				"Write `%s` into the row of `%s`, or give it a row of its own.", name, path.Base(name), path.Dir(name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		if _, err := os.Stat(filepath.FromSlash(name)); err != nil {
			t.Errorf("CONTRIBUTING.md, Where things live: %s does not exist. It is named in the row\n%s", name, listed[name])
		}
	}
}

// Files that stand at the top, because those who know client-go look for them there.
func TestFilesAtTheTop(t *testing.T) {
	for name := range strings.FieldsSeq(`go.mod go.sum queue.go delaying_queue.go rate_limiting_queue.go default_rate_limiters.go
		metrics.go heap.go queue_test.go delaying_queue_test.go rate_limiters_test.go bench_test.go README.md LICENSE`) {
		if _, err := os.Stat(name); err != nil {
			t.Error(err)
		}
	}
}

// Modules that users upgrade by themselves import no internal package: those may change in any release of the root.
func TestSubmodulesUseExportedNames(t *testing.T) {
	for _, module := range []string{"controllerruntime", "otel", "redisqueue", "sharding"} {
		err := filepath.WalkDir(module, func(name string, entry fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			text, err := os.ReadFile(name)
			if strings.Contains(string(text), `"github.com/keyedqueue/workqueue/internal/`) {
				t.Errorf("%s imports an internal package of the root", name)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}
