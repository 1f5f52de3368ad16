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

// tree is what the map of CONTRIBUTING.md describes.
type tree struct {
	// sources are the source files, without tests, doc.go and what is internal.
	sources []string
	// directories are internal packages and modules of their own. The map need not list their files.
	directories []string
}

// readTree walks the repository.
func readTree(t *testing.T) (found tree) {
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
				found.directories = append(found.directories, name)
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(base) != ".go" || strings.HasSuffix(base, "_test.go") || base == "doc.go" {
			return nil
		}
		if dir := path.Dir(name); !strings.Contains("/"+dir+"/", "/internal/") {
			found.sources = append(found.sources, name)
		} else if !slices.Contains(found.directories, dir) {
			found.directories = append(found.directories, dir)
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

// readMap returns the files and directories that the map names, each with the row that it is in. A row begins with the
// files or directories that it is about. Other files of the row are in the first of these directories.
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
		dir := "."
		for _, name := range inBackticks.FindAllStringSubmatch(cells[1], -1) {
			listed[name[1]] = row
			if dir == "." && path.Ext(name[1]) == "" {
				dir = name[1]
			}
		}
		for _, name := range inBackticks.FindAllStringSubmatch(cells[2], -1) {
			if strings.HasSuffix(name[1], ".go") {
				listed[path.Join(dir, name[1])] = row
			}
		}
	}
	return listed
}

// The map of CONTRIBUTING.md lists every source file, internal package and module, and nothing else.
func TestMapOfTheTree(t *testing.T) {
	tree, listed := readTree(t), readMap(t)
	for _, name := range append(tree.sources, tree.directories...) {
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
