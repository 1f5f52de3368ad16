package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const (
	clientGoPath  = "k8s.io/client-go"
	workqueuePath = clientGoPath + "/util/workqueue"
	queuePath     = "github.com/keyedqueue/workqueue"
)

// What swap writes into the module's root.
const (
	modName = "swap.mod"
	sumName = "swap.sum"
	dirName = ".swap"
)

// A program is a module that uses client-go.
type program struct {
	root   string // The directory of go.mod.
	work   string // The go.work file in use, or empty.
	vendor bool   // The go command would use a vendor directory.
}

// findProgram returns the module that dir is in.
func findProgram(dir string) (*program, error) {
	out, err := goCommand{dir: dir}.run("env", "-json", "GOMOD", "GOWORK", "GOFLAGS")
	if err != nil {
		return nil, err
	}
	var env struct{ GOMOD, GOWORK, GOFLAGS string }
	if err := json.Unmarshal(out, &env); err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	if env.GOMOD == "" || env.GOMOD == os.DevNull {
		return nil, errors.New("no go.mod here or above: run swap in the directory of a module")
	}
	if strings.Contains(env.GOFLAGS, "-modfile") {
		return nil, fmt.Errorf("GOFLAGS has -modfile (%s): unset it, swap works with the module's own go.mod",
			env.GOFLAGS)
	}
	p := &program{root: filepath.Dir(env.GOMOD)}
	if env.GOWORK != "" && env.GOWORK != "off" {
		p.work = env.GOWORK
	}
	_, err = os.Stat(filepath.Join(p.root, "vendor", "modules.txt"))
	p.vendor = err == nil || strings.Contains(env.GOFLAGS, "-mod=vendor")
	return p, nil
}

// command returns the command line that runs the go command name on the swapped program.
func (p *program) command(name string) string {
	line := "go " + name + " -modfile=" + modName
	if p.vendor {
		line += " -mod=mod" // What is in vendor is not what swap.mod asks for.
	}
	if p.work != "" {
		line = "GOWORK=off " + line // In a workspace, go refuses -modfile.
	}
	return line
}

// unswapped returns a go command that looks at the program as it is, and changes none of its files, no matter
// what GOFLAGS says. It looks at modules, not into a vendor directory, which has only some packages of
// each and no go.mod files.
func (p *program) unswapped() goCommand {
	return goCommand{dir: p.root, flags: []string{"-mod=readonly"}}
}

// swapped returns a go command that builds the swapped program. It may complete swap.mod and swap.sum.
func (p *program) swapped() goCommand {
	return goCommand{dir: p.root, env: []string{"GOWORK=off"}, flags: p.swappedFlags()}
}

func (p *program) swappedFlags() []string { return []string{"-modfile=" + modName, "-mod=mod"} }

type goCommand struct {
	dir   string
	env   []string // Added to the environment.
	flags []string // Added to every subcommand that builds or lists.
}

// run returns what the subcommand prints. Its error has what the go command wrote to standard error.
func (g goCommand) run(subcommand string, args ...string) ([]byte, error) {
	cmd := exec.Command("go", slices.Concat([]string{subcommand}, g.flags, args)...)
	cmd.Dir = g.dir
	cmd.Env = append(os.Environ(), g.env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}
