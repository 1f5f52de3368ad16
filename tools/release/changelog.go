package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/semver"
)

const (
	changelogName = "CHANGELOG.md"
	unreleased    = "## Unreleased\n"
)

// changelog is the text of the changelog. The heading of what is not released yet comes first, then the releases,
// newest first: "## v0.1.0 (2026-01-31)".
type changelog string

func (r *repository) changelog() (changelog, error) {
	data, err := os.ReadFile(filepath.Join(r.dir, changelogName))
	return changelog(data), err
}

var releaseHeading = regexp.MustCompile(`(?m)^## (v\d+\.\d+\.\d+) `)

// last returns the version of the last release, or "" before the first one.
func (c changelog) last() string {
	if match := releaseHeading.FindStringSubmatch(string(c)); match != nil {
		return match[1]
	}
	return ""
}

// release returns the changelog in which everything that is unreleased belongs to version.
func (c changelog) release(version string, now time.Time) (string, error) {
	before, after, ok := strings.Cut(string(c), unreleased)
	if !ok {
		return "", errors.New(changelogName + " has no heading \"Unreleased\"")
	}
	lines, _, _ := strings.Cut(after, "\n## ")
	if strings.TrimSpace(lines) == "" {
		return "", errors.New(changelogName + " has nothing under \"Unreleased\"")
	}
	return fmt.Sprintf("%s%s\n## %s (%s)\n%s", before, unreleased, version, now.Format(time.DateOnly), after), nil
}

// nextMinor returns the minor version after last.
func nextMinor(last string) string {
	if last == "" {
		return "v0.1.0"
	}
	majorMinor := semver.MajorMinor(last)
	dot := strings.IndexByte(majorMinor, '.')
	minor, _ := strconv.Atoi(majorMinor[dot+1:])
	return fmt.Sprintf("%s.%d.0", majorMinor[:dot], minor+1)
}
