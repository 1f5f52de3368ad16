// Command release publishes all modules of this repository under one version. docs/releasing.md says how it is used,
// and why a release is made of two commits.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"time"
)

const usage = `Usage: go -C tools run ./release [-C directory] command

	cut [version]            commit and tag all modules; without a version, the next minor one
	proxy version directory  write the zips of a release, laid out for GOPROXY=file://directory
	api [version]            compare what packages export with a release; without a version, the last one

Nothing is pushed: cut prints the command.
`

func main() {
	dir := flag.String("C", "..", "the repository's `directory`")
	flag.Usage = func() { fmt.Fprint(flag.CommandLine.Output(), usage) }
	flag.Parse()
	if err := run(*dir, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(dir string, args []string) error {
	r, err := open(dir)
	if err != nil {
		return err
	}
	command := ""
	if len(args) > 0 {
		command, args = args[0], args[1:]
	}
	switch {
	case command == "cut" && len(args) <= 1:
		version, err := r.next(args)
		if err != nil {
			return err
		}
		return r.cut(version, time.Now())
	case command == "proxy" && len(args) == 2:
		return r.writeProxy(args[0], args[1])
	case command == "api" && len(args) <= 1:
		return r.compareAPI(args)
	}
	flag.Usage()
	return errors.New("no such command")
}
