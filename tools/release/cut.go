package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

// next returns the version to release: the one asked for, or the next minor version.
func (r *repository) next(args []string) (string, error) {
	log, err := r.changelog()
	if err != nil {
		return "", err
	}
	last := log.last()
	if len(args) == 0 {
		return nextMinor(last), nil
	}
	version := args[0]
	if semver.Canonical(version) != version || semver.Prerelease(version)+semver.Build(version) != "" {
		return "", fmt.Errorf("%s is not a version like v0.1.0", version)
	}
	if major := semver.Major(version); major != "v0" && major != "v1" {
		return "", fmt.Errorf("%s needs module paths that end in /%s", version, major)
	}
	if semver.Compare(version, last) <= 0 {
		return "", fmt.Errorf("%s is not newer than the last release, %s", version, last)
	}
	return version, nil
}

// cut makes a release: a commit with its version and changelog on the current branch, and on top of it, on no branch,
// the commit that gets the tags.
func (r *repository) cut(version string, now time.Time) error {
	branch, err := r.git("symbolic-ref", "--short", "HEAD")
	if err != nil {
		return fmt.Errorf("a release starts from a branch: %w", err)
	}
	if changed, err := r.git("status", "--porcelain"); err != nil || changed != "" {
		return errors.Join(err, fmt.Errorf("commit your changes first:\n%s", changed))
	}
	log, err := r.changelog()
	if err != nil {
		return err
	}
	released, err := log.release(version, now)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(r.dir, changelogName), []byte(released), 0o644); err != nil {
		return err
	}
	for _, m := range r.modules {
		if err := r.edit(m, requireOurs(version)); err != nil {
			return err
		}
	}
	if _, err := r.git("commit", "--quiet", "--all", "--message", "Release "+version); err != nil {
		return err
	}
	if err := r.tagPublished(version); err != nil {
		_, back := r.git("checkout", "--quiet", "--force", branch)
		return errors.Join(err, back)
	}
	if _, err := r.git("checkout", "--quiet", branch); err != nil {
		return err
	}
	var tags []string
	for _, m := range r.published() {
		tags = append(tags, m.tag(version))
	}
	fmt.Printf("%s is committed and tagged. To publish it:\n\n\tgit push --atomic origin %s %s\n", version, branch, strings.Join(tags, " "))
	return nil
}

// requireOurs sets the version of all modules of this repository that a go.mod requires.
func requireOurs(version string) func(*modfile.File) error {
	return func(file *modfile.File) error {
		for _, require := range slices.Clone(file.Require) {
			if isOurs(require.Mod.Path) {
				if err := file.AddRequire(require.Mod.Path, version); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

// tagPublished commits go.mod files without replace directives, and tags that commit. Go installs no program whose
// module has such directives, and ignores them in modules that it imports: then go.sum must have the sums of our own.
func (r *repository) tagPublished(version string) error {
	if _, err := r.git("checkout", "--quiet", "--detach"); err != nil {
		return err
	}
	for _, m := range r.published() {
		if err := r.edit(m, dropOurs); err != nil {
			return err
		}
	}
	sums := map[string][]string{}
	for _, m := range r.published() {
		var lines []string
		for _, required := range m.requires {
			lines = append(lines, sums[required]...)
		}
		if err := r.addSums(m, lines); err != nil {
			return err
		}
		var err error
		if sums[m.path], err = r.sums(m, version); err != nil {
			return err
		}
	}
	if _, err := r.git("commit", "--quiet", "--message", version+", as it is published"); err != nil {
		return err
	}
	for _, m := range r.published() {
		if _, err := r.git("tag", "--annotate", "--message", m.path+" "+version, m.tag(version)); err != nil {
			return err
		}
	}
	return nil
}

// dropOurs removes the replace directives for modules of this repository. Others must not be there.
func dropOurs(file *modfile.File) error {
	for _, replace := range slices.Clone(file.Replace) {
		if !isOurs(replace.Old.Path) {
			return fmt.Errorf("it replaces %s, which a published module cannot", replace.Old.Path)
		}
		if err := file.DropReplace(replace.Old.Path, replace.Old.Version); err != nil {
			return err
		}
	}
	return nil
}

// addSums adds lines to a module's go.sum, in the order that go mod tidy gives them.
func (r *repository) addSums(m *nested, lines []string) error {
	if len(lines) == 0 {
		return nil
	}
	name := filepath.Join(r.dir, filepath.FromSlash(m.dir), "go.sum")
	data, err := os.ReadFile(name)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	all := append(strings.Split(strings.TrimSuffix(string(data), "\n"), "\n"), lines...)
	all = slices.DeleteFunc(all, func(line string) bool { return line == "" })
	slices.SortFunc(all, compareSums)
	return os.WriteFile(name, []byte(strings.Join(slices.Compact(all), "\n")+"\n"), 0o644)
}

// compareSums compares lines of a go.sum file: by path, then by version, where "v1.0.0/go.mod" follows "v1.0.0".
func compareSums(a, b string) int {
	x, y := append(strings.Fields(a), "", ""), append(strings.Fields(b), "", "")
	if c := strings.Compare(x[0], y[0]); c != 0 {
		return c
	}
	xVersion, xFile, _ := strings.Cut(x[1], "/")
	yVersion, yFile, _ := strings.Cut(y[1], "/")
	if c := semver.Compare(xVersion, yVersion); c != 0 {
		return c
	}
	return strings.Compare(xFile, yFile)
}
