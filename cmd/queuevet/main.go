// Command queuevet finds mistakes in programs that use a work queue: this project's, client-go's or
// controller-runtime's.
//
//	queuevet ./...
//
// It runs "go vet -vettool=queuevet" with its arguments, so that one package at a time is loaded and results are cached.
// The README beside this file describes what it reports.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/keyedqueue/workqueue/cmd/queuevet/analyzer"
	"golang.org/x/tools/go/analysis/unitchecker"
)

func main() {
	if !asksForHelp(os.Args[1:]) && !calledByVet(os.Args[1:]) {
		os.Exit(vet(os.Args[1:]))
	}
	unitchecker.Main(analyzer.All()...)
}

func asksForHelp(args []string) bool {
	return len(args) == 0 || args[0] == "help" || args[0] == "-h" || args[0] == "--help"
}

// calledByVet reports whether the arguments are those with which go vet calls a tool: -V=full, -flags, or a file *.cfg at
// the end.
func calledByVet(args []string) bool {
	return strings.HasPrefix(args[0], "-V") || args[0] == "-flags" || strings.HasSuffix(args[len(args)-1], ".cfg")
}

// vet runs go vet and returns its exit code.
func vet(args []string) int {
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, "queuevet:", err)
		return 1
	}
	cmd := exec.Command("go", append([]string{"vet", "-vettool=" + self}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err = cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "queuevet:", err)
		return 1
	}
	return 0
}
