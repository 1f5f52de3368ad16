package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/exp/apidiff"
	"golang.org/x/mod/semver"
	"golang.org/x/tools/go/packages"
)

// compareAPI prints what importers of the published modules notice when they update from a release to the working
// tree. It fails if that breaks them and the version promises that it does not.
func (r *repository) compareAPI(args []string) error {
	log, err := r.changelog()
	if err != nil {
		return err
	}
	previous := log.last()
	if len(args) == 1 {
		previous = args[0]
	}
	if previous == "" {
		fmt.Println("There is no release yet to compare the API with.")
		return nil
	}
	broken := false
	for _, m := range r.published() {
		old, err := r.download(m, previous)
		if err != nil {
			return err
		}
		if old == "" {
			fmt.Printf("%s is not in %s\n", m.path, previous)
			continue
		}
		report, err := compareModules(m.path, old, filepath.Join(r.dir, m.dir))
		if err != nil {
			return err
		}
		fmt.Printf("%s since %s:\n%s", m.path, previous, describe(report))
		broken = broken || slices.ContainsFunc(report.Changes, func(c apidiff.Change) bool { return !c.Compatible })
	}
	if broken && semver.Major(previous) != "v0" {
		return fmt.Errorf("an incompatible change of the API needs a new major version")
	}
	return nil
}

// download returns the directory of a published version, or "" if the release has no such module.
func (r *repository) download(m *nested, version string) (string, error) {
	cmd := exec.Command("go", "mod", "download", "-json", m.path+"@"+version)
	cmd.Dir = os.TempDir() // Outside the modules, whose replace directives do not matter here.
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, failed := cmd.Output()
	var result struct{ Dir, Error string }
	if err := json.Unmarshal(out, &result); err != nil {
		return "", fmt.Errorf("go mod download: %w: %w", failed, err)
	}
	if strings.Contains(result.Error, "not found") || strings.Contains(result.Error, "unknown revision") {
		if m.path != rootPath {
			return "", nil
		}
	}
	if result.Error != "" {
		return "", fmt.Errorf("go mod download: %s", result.Error)
	}
	return result.Dir, nil
}

// compareModules compares a module in two directories.
func compareModules(path, old, new string) (apidiff.Report, error) {
	before, err := load(path, old)
	if err != nil {
		return apidiff.Report{}, err
	}
	after, err := load(path, new)
	if err != nil {
		return apidiff.Report{}, err
	}
	return apidiff.ModuleChanges(before, after), nil
}

// load returns the packages of a module that others can import.
func load(path, dir string) (*apidiff.Module, error) {
	config := &packages.Config{Mode: packages.NeedName, Dir: dir, Env: append(os.Environ(), "GOWORK=off")}
	all, err := packages.Load(config, "./...")
	if err != nil {
		return nil, err
	}
	var public []string
	for _, pkg := range all {
		if pkg.Name != "main" && !slices.Contains(strings.Split(pkg.PkgPath, "/"), "internal") {
			public = append(public, pkg.PkgPath)
		}
	}
	m := &apidiff.Module{Path: path}
	if len(public) == 0 {
		return m, nil // And nothing needs to be compiled.
	}
	config.Mode = packages.LoadTypes
	loaded, err := packages.Load(config, public...)
	if err != nil {
		return nil, err
	}
	for _, pkg := range loaded {
		if len(pkg.Errors) > 0 {
			return nil, fmt.Errorf("%s: %w", dir, pkg.Errors[0])
		}
		m.Packages = append(m.Packages, pkg.Types)
	}
	return m, nil
}

func describe(report apidiff.Report) string {
	if len(report.Changes) == 0 {
		return "\tno changes\n"
	}
	var s strings.Builder
	for _, change := range report.Changes {
		kind := "incompatible"
		if change.Compatible {
			kind = "compatible"
		}
		fmt.Fprintf(&s, "\t%s: %s\n", kind, change.Message)
	}
	return s.String()
}
