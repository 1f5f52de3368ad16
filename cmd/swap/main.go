// Command swap tries github.com/keyedqueue/workqueue on a whole program that uses client-go's work queue,
// itself or through its libraries, and leaves the program's own files alone. In the directory of any module:
//
//	go run github.com/keyedqueue/workqueue/cmd/swap@latest
//	go test -modfile=swap.mod ./...
//	go build -modfile=swap.mod ./...
//
// It writes a copy of the client-go version that the program builds with to .swap, and swap.mod and swap.sum,
// which are the module's go.mod and go.sum with that copy in client-go's place. The copy's util/workqueue is
// replaced with one in which every name stands for ours: types are aliases, functions are variables or call
// ours. So informers, leader election, controller-runtime and the program itself run on our queues, and
// metrics registered with client-go's SetProvider, as component-base and controller-runtime do, see them. (It
// names the packages that do so: a program that changes its imports needs the provider of this project as
// well.)
//
// Every client-go from v0.31 on is supported, and so are replace directives (also of client-go), vendor
// directories and workspaces: swap prints the commands to use. Run it again after a change of go.mod. To
// clean up:
//
//	go run github.com/keyedqueue/workqueue/cmd/swap@latest -remove
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

const usage = `Usage, in the directory of a module: swap [flags]

Tries github.com/keyedqueue/workqueue on a whole program that uses client-go's util/workqueue, itself or
through its libraries. Writes swap.mod, swap.sum and .swap, a copy of the program's client-go whose
util/workqueue forwards every name to ours. All other files stay as they are. Then run:

	go test -modfile=swap.mod ./...
	go build -modfile=swap.mod ./...

Flags:
`

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "swap:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("swap", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // main reports errors.
	version := flags.String("version", "latest", "`version` of github.com/keyedqueue/workqueue to use")
	replace := flags.String("replace", "",
		"use the checkout of github.com/keyedqueue/workqueue in this `directory`")
	remove := flags.Bool("remove", false, "remove swap.mod, swap.sum and .swap")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, usage)
		flags.SetOutput(stdout)
		flags.PrintDefaults()
		return nil
	case err != nil:
		return fmt.Errorf("%w (see -h)", err)
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: swap works on the module of the current directory (see -h)",
			flags.Arg(0))
	}
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	p, err := findProgram(dir)
	if err != nil {
		return err
	}
	if *remove {
		return p.remove()
	}
	queue := queueModule{version: *version}
	if *replace != "" {
		if queue.dir, err = checkout(*replace); err != nil {
			return err
		}
	}
	result, err := p.swap(queue)
	if err != nil {
		return err
	}
	fmt.Fprint(stdout, result)
	return nil
}

// checkout returns the absolute path of dir, a checkout of the queue.
func checkout(dir string) (string, error) {
	if file, err := parseModFile(filepath.Join(dir, "go.mod")); err != nil {
		return "", fmt.Errorf("-replace %s: %w", dir, err)
	} else if path := file.Module.Mod.Path; path != queuePath {
		return "", fmt.Errorf("-replace %s: that is module %s, not %s", dir, path, queuePath)
	}
	return filepath.Abs(dir)
}

// String is what the user reads after a swap.
func (r *result) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s: util/workqueue now forwards %d names to %s.\n", r.clientGo, len(r.names), r.queue)
	if len(r.changed) > 0 {
		fmt.Fprintf(&s, "Versions that the program builds with and that differ from those of go.mod:\n")
		for _, line := range r.changed {
			fmt.Fprintf(&s, "\t%s\n", line)
		}
	}
	for _, note := range r.notes {
		fmt.Fprintf(&s, "Note: %s\n", note)
	}
	in := ""
	if dir, err := os.Getwd(); err != nil || dir != r.root {
		in = fmt.Sprintf(" in %s", r.root)
	}
	fmt.Fprintf(&s, "\nRun the program on it, and its tests%s:\n\n\t%s ./...\n\t%s ./...\n\n"+
		"To clean up, run swap -remove.\n",
		in, r.command("build"), r.command("test"))
	return s.String()
}
