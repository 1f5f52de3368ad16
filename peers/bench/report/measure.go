package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
)

// measurement is how the benchmarks are run.
type measurement struct {
	rounds    int
	benchtime string
	short     bool
}

// machineLine are the lines before the benchmarks. They are the same each time.
var machineLine = regexp.MustCompile(`^(goos|goarch|pkg|cpu): `)

// write runs the benchmarks of the module in a directory, and writes what they print to a file, with the
// versions of all that is measured. The file is changed only if all went well.
func (m measurement) write(raw, module string) error {
	scratch, err := os.MkdirTemp("", "")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	// The program is run as a whole again and again, because with -test.count it would run one benchmark many
	// times and then the next. So what else the machine does falls on all implementations.
	program := filepath.Join(scratch, "peers.test")
	if _, err := output(module, "go", "test", "-c", "-o", program, "./bench"); err != nil {
		return err
	}
	all, err := m.header(module)
	if err != nil {
		return err
	}
	args := []string{"-test.run=^$", "-test.bench=.", "-test.timeout=0", "-test.benchtime=" + m.benchtime}
	if m.short {
		args = append(args, "-test.short")
	}
	for round := range m.rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", round+1, m.rounds)
		out, err := output(module, program, args...)
		if err != nil {
			return err
		}
		for line := range strings.Lines(out) {
			if strings.HasPrefix(line, "Benchmark") || round == 0 && machineLine.MatchString(line) {
				all += line
			}
		}
	}
	return os.WriteFile(raw, []byte(all), 0o644)
}

// header returns lines in the format of benchstat that say what is measured, and how.
func (m measurement) header(module string) (string, error) {
	commit, err := output(module, "git", "describe", "--always", "--dirty")
	if err != nil {
		return "", err
	}
	versions, err := output(module, "go", "list", "-m", "-f", "{{.Path}}: {{.Version}}",
		"k8s.io/client-go", "sigs.k8s.io/controller-runtime", "github.com/prometheus/client_golang")
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("go: %s\ncpus: %d\nkeyedqueue: %s%srounds: %d\nbenchtime: %s\n",
		runtime.Version(), runtime.NumCPU(), commit, versions, m.rounds, m.benchtime), nil
}

// output runs a program in a directory and returns what it prints.
func output(dir, program string, args ...string) (string, error) {
	cmd := exec.Command(program, args...)
	var out bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%v: %w\n%s", cmd, err, out.String())
	}
	return out.String(), nil
}
