package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/zip"
)

// zip writes the module's zip at a commit, or of a tree, to a file, with the content that a proxy serves.
func (r *repository) zip(m *nested, version, commit, file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	if err := zip.CreateFromVCS(f, m.at(version), r.dir, commit, m.dir); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// sums returns the lines of go.sum for the module as it is in the working tree.
func (r *repository) sums(m *nested, version string) ([]string, error) {
	dir, err := os.MkdirTemp("", "release-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if _, err := r.git("add", "--all"); err != nil {
		return nil, err
	}
	tree, err := r.git("write-tree")
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "module.zip")
	if err := r.zip(m, version, tree, file); err != nil {
		return nil, err
	}
	all, err := dirhash.HashZip(file, dirhash.Hash1)
	if err != nil {
		return nil, err
	}
	gomod, err := dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) {
		return os.Open(filepath.Join(r.dir, m.dir, "go.mod"))
	})
	if err != nil {
		return nil, err
	}
	return []string{
		fmt.Sprintf("%s %s %s", m.path, version, all),
		fmt.Sprintf("%s %s/go.mod %s", m.path, version, gomod),
	}, nil
}

// writeProxy writes the published modules of a release as a proxy serves them.
func (r *repository) writeProxy(version, dir string) error {
	for _, m := range r.published() {
		tag := m.tag(version)
		escaped, err := module.EscapePath(m.path)
		if err != nil {
			return err
		}
		base := filepath.Join(dir, filepath.FromSlash(escaped), "@v")
		if err := os.MkdirAll(base, 0o755); err != nil {
			return err
		}
		gomod, err := r.git("show", tag+":"+path.Join(m.dir, "go.mod"))
		if err != nil {
			return err
		}
		info, err := json.Marshal(struct {
			Version string
			Time    time.Time
		}{version, time.Now().UTC()})
		if err != nil {
			return err
		}
		for name, data := range map[string][]byte{"list": []byte(version + "\n"), version + ".info": info, version + ".mod": []byte(gomod + "\n")} {
			if err := os.WriteFile(filepath.Join(base, name), data, 0o644); err != nil {
				return err
			}
		}
		name := filepath.Join(base, version+".zip")
		if err := r.zip(m, version, tag, name); err != nil {
			return err
		}
		stat, err := os.Stat(name)
		if err != nil {
			return err
		}
		fmt.Printf("%s %s: %d KB\n", m.path, version, stat.Size()/1000)
	}
	return nil
}
