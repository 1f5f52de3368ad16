// Command kube watches the Pods of a Kubernetes cluster and prints a line for each that restarts too
// often. It is an example of a controller on client-go's informers, this module's queue and its
// worker package; README.md says where to look for what, -h how to run it.
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
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

const usage = `Usage: kube [flags]

Watches the Pods of a Kubernetes cluster and prints one line whenever the
containers of a Pod have restarted too often within a while, until Ctrl-C:

  default/web-1: 4 restarts within 10m0s: app (CrashLoopBackOff, last exit 137 OOMKilled)

It only reads. Its user must be allowed to list and watch Pods.

  kube                                      the cluster that kubectl uses
  kube -kubeconfig ~/.kube/test -namespace default -restarts 5 -within 1h
  kube -demo                                no cluster: Pods that are made up, for a few seconds

Restarts that happened before the start are not counted, because the cluster
does not say when they were.

Exit codes: 0 ended by Ctrl-C, SIGTERM or the end of the demo; 1 the cluster
cannot be reached or refuses; 2 bad arguments.

Flags:
`

type options struct {
	namespace string
	restarts  int
	within    time.Duration
	workers   int
}

// check refuses values that make no sense.
func (o *options) check(args []string) error {
	switch {
	case len(args) > 0:
		return fmt.Errorf("unexpected argument %q", args[0])
	case o.restarts < 1:
		return fmt.Errorf("-restarts %d: want 1 or more", o.restarts)
	case o.within <= 0:
		return fmt.Errorf("-within %v: want more than 0", o.within)
	case o.workers < 1:
		return fmt.Errorf("-workers %d: want 1 or more", o.workers)
	}
	return nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// From the first signal on, signals do what they do by default: a second one kills.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr, connect))
}

// run is main with its surroundings as arguments, and the exit code as the result.
func run(ctx context.Context, args []string, stdout, stderr io.Writer,
	connect func(kubeconfig string) (kubernetes.Interface, error)) int {
	var o options
	flags := flag.NewFlagSet("kube", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // Errors are reported below, in our own words.
	kubeconfig := flags.String("kubeconfig", "",
		"`file` that says where the cluster is; default: $KUBECONFIG, ~/.kube/config, or the cluster that this runs in")
	flags.StringVar(&o.namespace, "namespace", "", "watch this namespace only")
	flags.IntVar(&o.restarts, "restarts", 3, "how many restarts are too many")
	flags.DurationVar(&o.within, "within", 10*time.Minute, "the time in which they are")
	flags.IntVar(&o.workers, "workers", 2, "how many Pods are looked at at the same time")
	isDemo := flags.Bool("demo", false, "show what it prints, without a cluster")
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, usage)
		flags.SetOutput(stdout)
		flags.PrintDefaults()
		return 0
	}
	if err == nil {
		err = o.check(flags.Args())
	}
	if err != nil {
		fmt.Fprintf(stderr, "kube: %v\nUsage: kube [flags] (kube -h explains)\n", err)
		return 2
	}
	if *isDemo {
		err = demo(ctx, o, stdout, stderr)
	} else {
		var client kubernetes.Interface
		if client, err = connect(*kubeconfig); err == nil {
			err = watch(ctx, client, o, stdout, stderr)
		}
	}
	if err != nil {
		fmt.Fprintf(stderr, "kube: %v\n", err)
		return 1
	}
	return 0
}

// connect returns a client for the cluster that kubeconfig says, and checks that it is there.
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
