package main

import (
	"fmt"
	"go/version"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/mod/modfile"
)

func parseModFile(path string) (*modfile.File, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	file, err := modfile.Parse(path, data, nil)
	if err == nil && file.Module == nil {
		err = fmt.Errorf("%s names no module", path)
	}
	return file, err
}

// writeFormatted writes a go.mod file, with first above it.
func writeFormatted(file *modfile.File, path, first string) error {
	file.Cleanup()
	data, err := file.Format()
	if err != nil {
		return err
	}
	return os.WriteFile(path, append([]byte(first), data...), 0o644)
}

// writeModFile writes swap.mod and swap.sum: the module's own files with the copy in client-go's place.
func (p *program) writeModFile(queue queueModule) (notes []string, err error) {
	file, err := parseModFile(filepath.Join(p.root, "go.mod"))
	if err != nil {
		return nil, err
	}
	sums, err := p.sums()
	if err != nil {
		return nil, err
	}
	if p.work != "" {
		if err := p.addWorkspace(file); err != nil {
			return nil, err
		}
		notes = append(notes,
			"go refuses -modfile in a workspace, so swap.mod replaces modules as "+p.work+" does.")
	}
	if p.vendor {
		notes = append(notes, "modules come from the module cache, not from the vendor directory.")
	}
	if err := replaceModule(file, clientGoPath, "./"+dirName+"/client-go"); err != nil {
		return nil, err
	}
	if err := p.addQueue(file, queue); err != nil {
		return nil, err
	}
	if err := keepGoDebug(file); err != nil {
		return nil, err
	}
	if err := writeFormatted(file, filepath.Join(p.root, modName), "// "+mark+"\n\n"); err != nil {
		return nil, err
	}
	return notes, os.WriteFile(filepath.Join(p.root, sumName), sums, 0o644)
}

// sums returns the checksums that the program builds with.
func (p *program) sums() ([]byte, error) {
	names := []string{filepath.Join(p.root, "go.sum")}
	if p.work != "" {
		names = append(names, p.work+".sum")
	}
	var sums []byte
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil && !os.IsNotExist(err) {
			return nil, err
		}
		sums = append(sums, data...)
	}
	return sums, nil
}

// replaceModule makes path stand for dir, instead of what any other replace directive says.
func replaceModule(file *modfile.File, path, dir string) error {
	for _, r := range file.Replace {
		if r.Old.Path == path {
			if err := file.DropReplace(path, r.Old.Version); err != nil {
				return err
			}
		}
	}
	return file.AddReplace(path, "", dir, "")
}

// addQueue makes file require the queue. A program that uses it already keeps its version, if that is a newer
// one, because the go command takes the highest version that anything requires.
func (p *program) addQueue(file *modfile.File, queue queueModule) error {
	if queue.dir != "" {
		if err := replaceModule(file, queuePath, queue.dir); err != nil {
			return err
		}
	}
	for _, r := range file.Require {
		if r.Mod.Path == queuePath {
			return nil // The copy of client-go requires queue.version.
		}
	}
	return file.AddRequire(queuePath, queue.version)
}

// keepGoDebug keeps the program's GODEBUG settings as they are. The queue needs a newer Go than many
// programs ask for, so the go command raises the go line of swap.mod, and that would change the settings'
// defaults.
func keepGoDebug(file *modfile.File) error {
	if slices.ContainsFunc(file.Godebug, func(d *modfile.Godebug) bool { return d.Key == "default" }) {
		return nil
	}
	return file.AddGodebug("default", version.Lang("go"+file.Go.Version))
}

// newerGo returns a note if swap.mod asks for a newer Go than go.mod.
func (p *program) newerGo() (note string, err error) {
	var versions []string
	for _, name := range []string{"go.mod", modName} {
		file, err := parseModFile(filepath.Join(p.root, name))
		if err != nil {
			return "", err
		}
		versions = append(versions, file.Go.Version)
	}
	if version.Compare("go"+versions[0], "go"+versions[1]) >= 0 {
		return "", nil
	}
	return fmt.Sprintf("%s says go %s and go.mod go %s, because the queue needs it. GODEBUG settings stay as "+
		"they are, but vet, which go test runs, reports what it does for newer programs (-vet=off).",
		modName, versions[1], versions[0]), nil
}

// addWorkspace does in file what the workspace does: its other modules, and what it replaces, take the place
// of the versions that are required.
func (p *program) addWorkspace(file *modfile.File) error {
	data, err := os.ReadFile(p.work)
	if err != nil {
		return err
	}
	work, err := modfile.ParseWork(p.work, data, nil)
	if err != nil {
		return err
	}
	home := filepath.Dir(p.work)
	others := make(map[string]string) // The directory of each other module.
	for _, use := range work.Use {
		dir := inDir(home, use.Path)
		if dir == p.root {
			continue
		}
		other, err := parseModFile(filepath.Join(dir, "go.mod"))
		if err != nil {
			return err
		}
		others[other.Module.Mod.Path] = dir
		// What one module of a workspace replaces is replaced for all.
		if err := addReplaces(file, other.Replace, dir); err != nil {
			return err
		}
	}
	if err := addReplaces(file, work.Replace, home); err != nil { // These override those of modules.
		return err
	}
	for _, path := range slices.Sorted(maps.Keys(others)) {
		if err := replaceModule(file, path, others[path]); err != nil {
			return err
		}
	}
	return nil
}

// addReplaces adds replace directives of a file in the directory home.
func addReplaces(file *modfile.File, replaces []*modfile.Replace, home string) error {
	for _, r := range replaces {
		path := r.New.Path
		if r.New.Version == "" { // A directory.
			path = inDir(home, path)
		}
		if err := file.AddReplace(r.Old.Path, r.Old.Version, path, r.New.Version); err != nil {
			return err
		}
	}
	return nil
}

// inDir returns path, which may be relative to dir.
func inDir(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}
