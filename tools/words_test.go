// Package tools_test checks that what the repository's texts name exists: the targets of links, the names in
// links of doc comments, the paths of files in both, and tests. Hosts are asked only with WORKQUEUE_ONLINE=1.
package tools_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/doc"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/yuin/goldmark"
	markdown "github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
)

const (
	root   = ".."
	module = "github.com/keyedqueue/workqueue"
)

// files returns the tracked and new files of the repository with that ending.
func files(t *testing.T, ending string) []string {
	t.Helper()
	out, err := exec.Command("git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard",
		"*"+ending).Output()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(strings.Fields(string(out)), func(name string) bool { return !exists(name) })
}

// exists reports whether the repository has that file or folder, in these letters: some file systems ignore
// their case.
func exists(name string) bool {
	_, err := fs.Stat(os.DirFS(root), path.Clean(name))
	return err == nil
}

// page is a Markdown file.
type page struct {
	links   []string // where its links lead, as written
	paths   []string // what its code spans have that looks like a file's path
	tests   []string // the same for names of tests, fuzz targets and benchmarks
	anchors []string // the fragments of its headings
}

var (
	filePath = regexp.MustCompile(`^[\w.-]+(/[\w.-]+)+\.(go|md|sh|yml|json|svg|lua|txt)$`)
	testName = regexp.MustCompile(`^(Test|Fuzz|Benchmark)[A-Z]\w*$`)
	testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
)

// testsOf returns the names of all tests, fuzz targets and benchmarks.
func testsOf(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, name := range files(t, "_test.go") {
		source, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range testFunc.FindAllSubmatch(source, -1) {
			all[string(found[1])] = true
		}
	}
	return all
}

func readPage(t *testing.T, name string) (p page) {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	tree := goldmark.New(goldmark.WithExtensions(extension.GFM)).Parser().Parse(text.NewReader(source))
	err = markdown.Walk(tree, func(node markdown.Node, entering bool) (markdown.WalkStatus, error) {
		if !entering {
			return markdown.WalkContinue, nil
		}
		switch node := node.(type) {
		case *markdown.Link:
			p.links = append(p.links, string(node.Destination))
		case *markdown.Image:
			p.links = append(p.links, string(node.Destination))
		case *markdown.AutoLink:
			if node.AutoLinkType == markdown.AutoLinkURL {
				p.links = append(p.links, string(node.URL(source)))
			}
		case *markdown.CodeSpan:
			if code := textOf(node, source); filePath.MatchString(code) {
				p.paths = append(p.paths, code)
			} else if testName.MatchString(code) {
				p.tests = append(p.tests, code)
			}
		case *markdown.Heading:
			anchor := fragment(textOf(node, source))
			for n := 1; slices.Contains(p.anchors, anchor); n++ {
				anchor = fmt.Sprintf("%s-%d", fragment(textOf(node, source)), n)
			}
			p.anchors = append(p.anchors, anchor)
		}
		return markdown.WalkContinue, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func textOf(node markdown.Node, source []byte) string {
	var b bytes.Buffer
	for child := node.FirstChild(); child != nil; child = child.NextSibling() {
		if leaf, ok := child.(*markdown.Text); ok {
			b.Write(leaf.Segment.Value(source))
		} else {
			b.WriteString(textOf(child, source))
		}
	}
	return b.String()
}

// fragment returns the anchor that GitHub gives to a heading.
func fragment(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}

func TestMarkdown(t *testing.T) {
	pages := map[string]page{}
	for _, name := range files(t, ".md") {
		pages[name] = readPage(t, name)
	}
	if len(pages) < 10 {
		t.Fatalf("only %d Markdown files", len(pages))
	}
	tests := testsOf(t)
	for name, p := range pages {
		for _, test := range p.tests {
			if !tests[test] {
				t.Errorf("%s names %s: there is no such test", name, test)
			}
		}
		for _, link := range p.links {
			target, err := url.Parse(link)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if target.Scheme != "" {
				checkURL(t, name, target)
				continue
			}
			file := name
			if target.Path != "" {
				file = path.Join(path.Dir(name), target.Path)
			}
			if !exists(file) {
				t.Errorf("%s: a link to %s, which does not exist", name, link)
			} else if to, ok := pages[file]; target.Fragment != "" &&
				(!ok || !slices.Contains(to.anchors, target.Fragment)) {
				t.Errorf("%s: a link to %s: no heading there has this anchor", name, link)
			}
		}
		for _, code := range p.paths {
			if name != "CHANGELOG.md" && !exists(code) && !exists(path.Join(path.Dir(name), code)) && ours(code) {
				t.Errorf("%s names %s, which does not exist", name, code)
			}
		}
	}
}

// ours reports whether a path begins with a folder of the repository. Others are paths of other projects.
func ours(name string) bool {
	first, _, _ := strings.Cut(name, "/")
	return exists(first)
}

var parsedOnce map[string]*doc.Package

// packages has the documentation of each of our packages, by import path.
func packages(t *testing.T) map[string]*doc.Package {
	t.Helper()
	if parsedOnce != nil {
		return parsedOnce
	}
	found := map[string][]*ast.File{}
	set := token.NewFileSet()
	for _, name := range files(t, ".go") {
		if strings.HasSuffix(name, "_test.go") || strings.Contains(name, "testdata/") {
			continue
		}
		file, err := parser.ParseFile(set, filepath.Join(root, name), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		dir := path.Join(module, path.Dir(name))
		found[dir] = append(found[dir], file)
	}
	all := map[string]*doc.Package{}
	for dir, parsed := range found {
		p, err := doc.NewFromFiles(set, parsed, dir, doc.AllDecls)
		if err != nil {
			t.Fatalf("%s: %v", dir, err)
		}
		all[dir] = p
	}
	parsedOnce = all
	return all
}

// declares reports whether a package has that name, as "Pool", "Pool.Run" or "Options.Workers".
func declares(p *doc.Package, name string) bool {
	first, second, isMember := strings.Cut(name, ".")
	has := func(values []*doc.Value, name string) bool {
		return slices.ContainsFunc(values, func(v *doc.Value) bool { return slices.Contains(v.Names, name) })
	}
	function := func(functions []*doc.Func, name string) bool {
		return slices.ContainsFunc(functions, func(f *doc.Func) bool { return f.Name == name })
	}
	if !isMember && (has(p.Consts, first) || has(p.Vars, first) || function(p.Funcs, first)) {
		return true
	}
	for _, declared := range p.Types {
		if !isMember && (declared.Name == first || has(declared.Consts, first) || has(declared.Vars, first) ||
			function(declared.Funcs, first)) {
			return true
		}
		if isMember && declared.Name == first && (function(declared.Methods, second) ||
			hasField(declared.Decl, first, second)) {
			return true
		}
	}
	return false
}

func hasField(decl *ast.GenDecl, of, name string) (found bool) {
	for _, spec := range decl.Specs {
		if declared, ok := spec.(*ast.TypeSpec); ok && declared.Name.Name == of {
			ast.Inspect(declared.Type, func(n ast.Node) bool {
				if field, ok := n.(*ast.Field); ok {
					found = found || slices.ContainsFunc(field.Names, func(id *ast.Ident) bool { return id.Name == name })
					if id, ok := field.Type.(*ast.Ident); ok && len(field.Names) == 0 {
						found = found || id.Name == name
					}
				}
				return true
			})
		}
	}
	return found
}

var (
	// notALink finds what was meant as a link, to a name that does not exist.
	notALink  = regexp.MustCompile(`\[\*?([a-z]\w*\.)?[A-Z]\w*[a-z]\w*(\.[A-Z]\w*)?\]`)
	pathInDoc = regexp.MustCompile(
		`\b(docs|examples|peers|tools|testdata|cmd|debug)(/[\w-]+)+\.(md|sh|yml|svg|json)\b`)
)

func TestDocComments(t *testing.T) {
	all := packages(t)
	if len(all) < 20 {
		t.Fatalf("only %d packages", len(all))
	}
	for dir, p := range all {
		check := func(where, docs string) {
			where = strings.TrimPrefix(dir, module) + ": " + where
			walkText(p.Parser().Parse(docs), func(piece comment.Text) {
				switch piece := piece.(type) {
				case comment.Plain:
					for _, broken := range notALink.FindAllString(string(piece), -1) {
						t.Errorf("%s: %s is no link: there is no such name", where, broken)
					}
				case *comment.DocLink:
					name := strings.TrimPrefix(piece.Recv+"."+piece.Name, ".")
					if other, ok := all[piece.ImportPath]; ok && name != "" && !declares(other, name) {
						t.Errorf("%s: a link to %s.%s, which does not exist", where, piece.ImportPath, name)
					} else if !ok && strings.HasPrefix(piece.ImportPath, module) {
						t.Errorf("%s: a link to %s, which does not exist", where, piece.ImportPath)
					}
				case *comment.Link:
					if target, err := url.Parse(piece.URL); err != nil {
						t.Errorf("%s: %v", where, err)
					} else {
						checkURL(t, where, target)
					}
				}
			})
			for _, name := range pathInDoc.FindAllString(docs, -1) {
				if !exists(name) && !exists(path.Join(strings.TrimPrefix(dir, module+"/"), name)) {
					t.Errorf("%s: names %s, which does not exist", where, name)
				}
			}
		}
		check("package", p.Doc)
		for _, value := range append(p.Consts, p.Vars...) {
			check(value.Names[0], value.Doc)
		}
		for _, function := range p.Funcs {
			check(function.Name, function.Doc)
		}
		for _, declared := range p.Types {
			check(declared.Name, declared.Doc)
			for _, value := range append(declared.Consts, declared.Vars...) {
				check(value.Names[0], value.Doc)
			}
			for _, function := range append(declared.Funcs, declared.Methods...) {
				check(declared.Name+"."+function.Name, function.Doc)
			}
		}
	}
}

// walkText calls f for each piece of text in a comment, but for code.
func walkText(d *comment.Doc, f func(comment.Text)) {
	texts := func(pieces []comment.Text) {
		for _, piece := range pieces {
			f(piece)
		}
	}
	var blocks func([]comment.Block)
	blocks = func(list []comment.Block) {
		for _, block := range list {
			switch block := block.(type) {
			case *comment.Paragraph:
				texts(block.Text)
			case *comment.Heading:
				texts(block.Text)
			case *comment.List:
				for _, item := range block.Items {
					blocks(item.Content)
				}
			}
		}
	}
	blocks(d.Content)
}

var online = os.Getenv("WORKQUEUE_ONLINE") == "1"

// asked has the answer of each address, so that none is asked twice.
var asked = map[string]error{}

// checkURL checks an address: names of our own on pkg.go.dev in the source, and others, online, by asking the
// host.
func checkURL(t *testing.T, where string, u *url.URL) {
	t.Helper()
	if u.Scheme != "http" && u.Scheme != "https" {
		return
	}
	if dir, ok := strings.CutPrefix(u.Host+u.Path, "pkg.go.dev/"+module); ok {
		p, known := packages(t)[module+strings.TrimSuffix(dir, "/")]
		if !known {
			t.Errorf("%s: a link to %s: there is no such package", where, u)
		} else if u.Fragment != "" && !strings.HasPrefix(u.Fragment, "pkg-") &&
			!strings.HasPrefix(u.Fragment, "hdr-") &&
			!strings.HasPrefix(u.Fragment, "example-") && !declares(p, u.Fragment) {
			t.Errorf("%s: a link to %s: there is no such name", where, u)
		}
		return
	}
	if file, ok := strings.CutPrefix(u.Host+u.Path, "github.com/keyedqueue/workqueue/blob/main/"); ok &&
		!exists(file) {
		t.Errorf("%s: a link to %s: there is no such file", where, u)
	}
	if !online || strings.HasPrefix(u.Host+u.Path, module) {
		return
	}
	address := *u
	address.Fragment = ""
	err, known := asked[address.String()]
	if !known {
		err = ask(address.String())
		asked[address.String()] = err
	}
	if err != nil {
		t.Errorf("%s: %v", where, err)
	}
}

// ask returns an error if there is nothing at an address. Hosts that want no programs as readers count as an
// answer.
func ask(address string) error {
	var last error
	for try := range 3 {
		time.Sleep(time.Duration(try) * time.Second)
		response, err := (&http.Client{Timeout: 20 * time.Second}).Get(address)
		if err != nil {
			last = err
			continue
		}
		response.Body.Close()
		if code := response.StatusCode; code != http.StatusNotFound && code != http.StatusGone {
			return nil
		}
		return fmt.Errorf("%s: %s", address, response.Status)
	}
	return last
}

// Dependabot knows folders, not modules.
func TestDependabot(t *testing.T) {
	settings, err := os.ReadFile(filepath.Join(root, ".github/dependabot.yml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files(t, "go.mod") {
		folder := "/" + strings.TrimSuffix(strings.TrimSuffix(name, "go.mod"), "/")
		if !strings.Contains(name, "testdata/") && !regexp.MustCompile(`[\[ ]`+regexp.QuoteMeta(folder)+
			`[\],]`).Match(settings) {
			t.Errorf(".github/dependabot.yml has no folder %s", folder)
		}
	}
}

// A tag of an action can be moved, a commit cannot.
func TestActionsArePinned(t *testing.T) {
	for _, name := range files(t, ".yml") {
		if !strings.HasPrefix(name, ".github/workflows/") {
			continue
		}
		content, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(content)) {
			if strings.Contains(line, "uses:") && !regexp.MustCompile(`@[0-9a-f]{40} # v\d`).MatchString(line) {
				t.Errorf("%s: %s", name, strings.TrimSpace(line))
			}
		}
		if !bytes.Contains(content, []byte("\npermissions:")) {
			t.Errorf("%s has no permissions", name)
		}
	}
}
