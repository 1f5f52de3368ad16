package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// module is a part of what go list -m -json prints.
type module struct {
	Path, Version, Dir string
	Replace            *module
}

func (m *module) String() string {
	s := strings.TrimSpace(m.Path + " " + m.Version)
	if m.Replace != nil {
		s += " => " + m.Replace.String()
	}
	return s
}

// clientGo returns the client-go that the program builds with. Its Dir exists.
func (p *program) clientGo() (*module, error) {
	out, err := p.unswapped().run("list", "-m", "-json", clientGoPath)
	if err != nil {
		return nil, fmt.Errorf("this program builds with no %s, or its go.mod is not in order: %w", clientGoPath,
			err)
	}
	m := &module{}
	if err := json.Unmarshal(out, m); err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	if m.Dir == "" {
		wanted := m
		if m.Replace != nil {
			wanted = m.Replace
		}
		out, err := goCommand{dir: p.root}.run("mod", "download", "-json", wanted.Path+"@"+wanted.Version)
		if err != nil {
			return nil, err
		}
		var downloaded module
		if err := json.Unmarshal(out, &downloaded); err != nil {
			return nil, fmt.Errorf("go mod download: %w", err)
		}
		m.Dir = downloaded.Dir
	}
	if m.Dir == p.root {
		return nil, errors.New("this module is client-go itself: run swap in a program that uses it")
	}
	return m, nil
}

// modules returns the module of each package that those of the program and their tests import.
func (p *program) modules(g goCommand) (map[string]module, error) {
	// With -e, because swap is no judge of the program: a package may lack its generated files, say.
	out, err := g.run("list", "-e", "-deps", "-test", "-f",
		"{{with .Module}}{{$.ImportPath}} {{.Path}} {{.Version}}{{end}}", "./...")
	if err != nil {
		return nil, err
	}
	modules := map[string]module{}
	for line := range strings.Lines(string(out)) {
		// The import path of a test variant has a space in it: "p [p.test]".
		if fields := strings.Fields(line); len(fields) == 3 {
			modules[fields[0]] = module{Path: fields[1], Version: fields[2]}
		}
	}
	return modules, nil
}

// changed returns a line for every module whose version is another one in after.
func changed(before, after map[string]module) []string {
	var lines []string
	for path, was := range before {
		if now, ok := after[path]; ok && now != was {
			lines = append(lines, fmt.Sprintf("%s %s (was %s)", now.Path, now.Version, was.Version))
		}
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}
