package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

const usage = `Usage: run.sh command [flags]

Runs Kubernetes and its libraries on client-go's work queue ("stock") and on ours ("swapped"), and compares them.

	build         build kube-apiserver and kube-controller-manager, stock and swapped
	tests         run the tests of all packages that use a work queue, and compare them test by test
	controlplane  run a control plane, stock and swapped in turn, and compare objects and costs
	crash         kill a controller with SIGKILL half-way, start it again, and check what it did
	sharding      kill, stop and cut off replicas that divide their keys with package sharding, and check what they did

run.sh command -h explains the flags of a command.
`

// errDiffer is the result of a comparison that ran and found a difference. The differences are printed by
// then.
var errDiffer = errors.New("stock and swapped differ")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			os.Exit(2)
		}
		fmt.Fprintln(os.Stderr, "kubernetes:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		return flag.ErrHelp
	}
	commands := map[string]func(context.Context, []string) error{
		"build":        build,
		"tests":        tests,
		"controlplane": controlPlane,
		"crash":        crash,
		"manager":      manager, // A child of crash.
		"sharding":     shardingCommand,
		"replica":      replica, // A child of sharding.
	}
	command, ok := commands[args[0]]
	if !ok {
		fmt.Fprint(os.Stderr, usage)
		return flag.ErrHelp
	}
	return command(ctx, args[1:])
}
