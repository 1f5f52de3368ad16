// Command queuevet finds programs in which the metrics of this project's queues have vanished, and queues
// whose keys are pointers.
//
//	go vet -vettool=$(which queuevet) ./...
//
// "queuevet ./..." is short for that. go vet loads one package at a time and caches results. The README
// beside this file describes what it reports.
package main

import (
	"errors"
	"log"
	"os"
	"os/exec"
	"strings"

	"github.com/keyedqueue/workqueue/cmd/queuevet/analyzer"
	"golang.org/x/tools/go/analysis/unitchecker"
)

func main() {
	args := os.Args[1:]
	if len(args) == 0 || args[0] == "help" || args[0] == "-h" || calledByVet(args) {
		unitchecker.Main(analyzer.Metrics, analyzer.Keys)
	}
	self, err := os.Executable()
	if err != nil {
		log.Fatal(err)
	}
	cmd := exec.Command("go", append([]string{"vet", "-vettool=" + self}, args...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	err = cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		os.Exit(exit.ExitCode()) // go vet has said why.
	}
	if err != nil {
		log.Fatal(err)
	}
}

// calledByVet reports whether these are the arguments with which go vet calls a tool.
func calledByVet(args []string) bool {
	return strings.HasPrefix(args[0], "-V") || args[0] == "-flags" ||
		strings.HasSuffix(args[len(args)-1], ".cfg")
}
