// Command sharded shows how replicas of one controller divide its keys with package sharding: as a demo on
// the terminal, and as a real controller on a cluster. README.md says where to look for what, -h how to run
// it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/keyedqueue/workqueue/sharding"
)

const usage = `Usage: sharded -demo
       sharded [flags]

With -demo it needs no cluster: three replicas in this process divide the keys
of 64 slots; one joins, one leaves, and one is killed. Each replica has a line:
"#" is a slot that it holds, "*" one whose key it is handling just now.

Without -demo it is a replica of a controller that keeps a checksum of each
ConfigMap with the label sharded-example=true in an annotation, until Ctrl-C.
Its user must be allowed to list, watch and update ConfigMaps, and all of that
and to get, create and delete Leases in the namespace of -leases.

Exit codes: 0 ended by Ctrl-C, SIGTERM or the end of the demo; 1 the cluster
cannot be reached, or something failed; 2 bad arguments.

Flags:
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// From the first signal on, signals do what they do by default: a second one kills.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is main with its surroundings as arguments, and the exit code as the result.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var o options
	flags := flag.NewFlagSet("sharded", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // Errors are reported below, in our own words.
	isDemo := flags.Bool("demo", false, "show what happens, without a cluster")
	kubeconfig := flags.String("kubeconfig", "",
		"`file` that says where the cluster is; default: $KUBECONFIG, ~/.kube/config, or the cluster that this runs in")
	flags.StringVar(&o.namespace, "namespace", "", "look after this namespace only")
	flags.StringVar(&o.leases, "leases", "default", "the namespace of the Leases")
	flags.StringVar(&o.http, "http", "",
		"address of the metrics (/metrics) and the debug page (/debug/workqueue/); default: none")
	flags.IntVar(&o.workers, "workers", 4, "how many ConfigMaps a replica handles at a time")
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, usage)
		flags.SetOutput(stdout)
		flags.PrintDefaults()
		return 0
	}
	switch {
	case err != nil:
	case flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.workers < 1:
		err = fmt.Errorf("-workers %d: want 1 or more", o.workers)
	}
	if err != nil {
		fmt.Fprintf(stderr, "sharded: %v\nUsage: sharded [flags] (sharded -h explains)\n", err)
		return 2
	}
	if *isDemo {
		err = demo(ctx, stdout, isWideTerminal(stdout))
	} else {
		var client kubernetes.Interface
		if client, err = connect(*kubeconfig); err == nil {
			err = control(ctx, client, sharding.Leases(client.CoordinationV1(), o.leases), o, stderr)
		}
	}
	if err != nil && ctx.Err() == nil {
		fmt.Fprintf(stderr, "sharded: %v\n", err)
		return 1
	}
	return 0
}

// isWideTerminal reports whether w is a terminal on which the picture's lines have room.
func isWideTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return false
	}
	width, _, err := term.GetSize(int(f.Fd()))
	return err == nil && width >= 80
}

// connect returns a client for the cluster that kubeconfig names, and checks that it is there.
func connect(kubeconfig string) (kubernetes.Interface, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("no cluster: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("bad configuration: %w", err)
	}
	if _, err := client.Discovery().ServerVersion(); err != nil {
		return nil, fmt.Errorf("the cluster at %s does not answer: %w", config.Host, err)
	}
	return client, nil
}
