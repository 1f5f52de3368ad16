// Command redisqueue shows and changes queues of package redisqueue on a server, for people on call. It knows nothing of the
// programs that use them: keys are shown as the server has them.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/redisqueue"
	"github.com/redis/go-redis/v9"
)

const usage = `redisqueue shows and changes work queues in Redis or Valkey.

Usage: redisqueue [flags] COMMAND [arguments]

  queues           the names of all queues on the server
  stats            how many keys are in which state
  ls [STATE]       keys that are queued, processing, waiting, failing, givenup or aside; all states without one
  show KEY         what the server knows of a key
  retry KEY...     queues keys again that were given up (-all: all of them, and those that were set aside)
  rm KEY...        removes keys; a worker that holds one finishes it
  pause, resume    whether any replica gets keys
  purge            deletes the queue with all its keys (needs -yes)

All but queues need -queue. Keys are written as the server has them: strings and numbers as they are, structs as JSON.

Flags:
`

// command is one call of the program.
type command struct {
	out    io.Writer
	json   bool
	all    bool
	yes    bool
	limit  int
	client redis.UniversalClient
	queue  *redisqueue.Queue[string]
}

// errUsage is an error that -h would have prevented.
var errUsage = errors.New("see redisqueue -h")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return
	}
	fmt.Fprintln(os.Stderr, "redisqueue:", err)
	if errors.Is(err, errUsage) {
		os.Exit(2)
	}
	os.Exit(1)
}

func run(ctx context.Context, args []string, out io.Writer) error {
	c := &command{out: out}
	flags := flag.NewFlagSet("redisqueue", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	server := cmp.Or(os.Getenv("REDIS_URL"), "redis://127.0.0.1:6379")
	url := flags.String("url", server, "the `server`, as redis://user:password@host:port/db, or rediss:// for TLS; $REDIS_URL")
	cluster := flags.Bool("cluster", false, "the server is a node of a Cluster")
	name := flags.String("queue", "", "the `name` of the queue")
	timeout := flags.Duration("timeout", 10*time.Second, "gives up after that time; purge has no limit")
	flags.BoolVar(&c.json, "json", false, "prints JSON")
	flags.BoolVar(&c.all, "all", false, "for retry: all keys that were given up or set aside")
	flags.BoolVar(&c.yes, "yes", false, "for purge: really")
	flags.IntVar(&c.limit, "n", 20, "for ls: at most so many keys of each state")
	help := func() {
		fmt.Fprint(out, usage)
		flags.SetOutput(out)
		flags.PrintDefaults()
	}
	// Flags may stand before and after the command, keys that look like flags behind a "--".
	rest, words := args, []string(nil)
	if i := slices.Index(args, "--"); i >= 0 {
		rest, words = args[:i], args[i+1:]
	}
	for before := 0; ; before++ {
		if err := flags.Parse(rest); errors.Is(err, flag.ErrHelp) {
			help()
			return err
		} else if err != nil {
			return fmt.Errorf("%w; %w", err, errUsage)
		}
		if flags.NArg() == 0 {
			break
		}
		words, rest = slices.Insert(words, before, flags.Arg(0)), flags.Args()[1:]
	}
	if len(words) == 0 {
		help()
		return fmt.Errorf("which command? %w", errUsage)
	}
	client, err := open(*url, *cluster)
	if err != nil {
		return err
	}
	defer client.Close()
	c.client = client
	if words[0] != "purge" {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, *timeout)
		defer cancel()
	}
	if words[0] != "queues" {
		if *name == "" {
			return fmt.Errorf("which queue? Name it with -queue; `redisqueue queues` lists them; %w", errUsage)
		}
		if c.queue, err = redisqueue.Attach(ctx, client, *name); err != nil {
			return err
		}
		defer c.queue.ShutDown()
	}
	return c.do(ctx, words[0], words[1:])
}

func open(url string, cluster bool) (redis.UniversalClient, error) {
	if cluster {
		options, err := redis.ParseClusterURL(url)
		if err != nil {
			return nil, fmt.Errorf("-url: %w", err)
		}
		return redis.NewClusterClient(options), nil
	}
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("-url: %w", err)
	}
	return redis.NewClient(options), nil
}

func (c *command) do(ctx context.Context, name string, args []string) error {
	switch {
	case len(args) > 0 && slices.Contains([]string{"queues", "stats", "pause", "resume", "purge"}, name):
		return fmt.Errorf("%s has no arguments: %q; %w", name, args, errUsage)
	case name == "show" && len(args) != 1:
		return fmt.Errorf("show needs one key; %w", errUsage)
	case name == "rm" && len(args) == 0:
		return fmt.Errorf("rm needs keys; %w", errUsage)
	case name == "retry" && (len(args) == 0) != c.all:
		return fmt.Errorf("retry needs keys, or -all; %w", errUsage)
	case name == "purge" && !c.yes:
		return fmt.Errorf("purge deletes the queue with all its keys, for all replicas: add -yes if that is meant; %w", errUsage)
	}
	switch name {
	case "queues":
		names, err := redisqueue.Queues(ctx, c.client)
		slices.Sort(names)
		return errors.Join(err, c.print(names, func(w io.Writer) {
			for _, name := range names {
				fmt.Fprintln(w, name)
			}
		}))
	case "stats":
		return c.stats(ctx)
	case "ls":
		return c.list(ctx, args)
	case "show":
		return c.show(ctx, args[0])
	case "retry":
		return c.retry(ctx, args)
	case "rm":
		return each(ctx, args, "is not in the queue", c.queue.Remove)
	case "pause":
		c.queue.Pause()
		return c.queue.Flush(ctx)
	case "resume":
		c.queue.Resume()
		return c.queue.Flush(ctx)
	case "purge":
		return c.queue.Purge(ctx)
	}
	return fmt.Errorf("there is no command %q; %w", name, errUsage)
}

// print prints v as JSON, or what text writes as a table.
func (c *command) print(v any, text func(w io.Writer)) error {
	if c.json {
		encoder := json.NewEncoder(c.out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(v)
	}
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	text(w)
	return w.Flush()
}

func (c *command) stats(ctx context.Context) error {
	if err := c.queue.Flush(ctx); err != nil {
		return err
	}
	st, info := c.queue.Stats(), c.queue.Info()
	n := struct {
		Queue, Description                   string
		Queued, Processing, Again, Waiting   int
		Failing, GivenUp, SetAside, Repaired int
		Paused                               bool
		OldestQueuedSeconds                  float64
	}{
		st.Name, c.queue.Description(), st.Queued, st.Processing, st.Again, st.Waiting,
		info.Failing, info.GivenUp, info.SetAside, info.Repaired, st.Paused, st.OldestQueued.Seconds(),
	}
	return c.print(n, func(w io.Writer) {
		fmt.Fprintf(w, "queue\t%s (%s)\npaused\t%v\n", n.Queue, n.Description, n.Paused)
		fmt.Fprintf(w, "queued\t%d, the oldest for %v\n", n.Queued, st.OldestQueued.Round(time.Millisecond))
		fmt.Fprintf(w, "processing\t%d, %d of them added again\nwaiting\t%d\n", n.Processing, n.Again, n.Waiting)
		fmt.Fprintf(w, "failing\t%d\ngiven up\t%d\nset aside\t%d\nrepaired\t%d\n", n.Failing, n.GivenUp, n.SetAside, n.Repaired)
	})
}

// line is a key as ls and show print it.
type line struct {
	State    string
	Key      string
	Since    time.Time `json:",omitzero"`
	Due      time.Time `json:",omitzero"`
	Failures int       `json:",omitempty"`
	Again    bool      `json:",omitempty"`
	Reason   string    `json:",omitempty"`
}

func lineOf(state string, k workqueue.KeySnapshot[string]) line {
	return line{State: state, Key: k.Key, Since: k.Since, Due: k.Due, Failures: k.Requeues, Again: k.Again}
}

func givenUpLine(k redisqueue.GivenUp[string]) line {
	return line{State: "givenup", Key: k.Key, Since: k.At, Failures: k.Attempts, Reason: k.Reason}
}

var states = []string{"processing", "queued", "waiting", "failing", "givenup", "aside"}

func (c *command) list(ctx context.Context, wanted []string) error {
	if len(wanted) == 0 {
		wanted = states
	}
	var snapshot workqueue.Snapshot[string]
	if slices.ContainsFunc(wanted, func(state string) bool { return slices.Contains(states[:4], state) }) {
		snapshot = c.queue.Snapshot(c.limit)
	}
	lists := [][]workqueue.KeySnapshot[string]{snapshot.Processing, snapshot.Queued, snapshot.Waiting, snapshot.Failing}
	lines := []line{}
	for _, state := range wanted {
		switch i := slices.Index(states, state); {
		case i < 0:
			return fmt.Errorf("there is no state %q, only %s; %w", state, strings.Join(states, ", "), errUsage)
		case i < len(lists):
			for _, k := range lists[i] {
				lines = append(lines, lineOf(state, k))
			}
		case state == "givenup":
			given, err := c.queue.GivenUp(ctx, c.limit)
			if err != nil {
				return err
			}
			for _, k := range given {
				lines = append(lines, givenUpLine(k))
			}
		default:
			aside, _, err := c.queue.SetAside(ctx, c.limit)
			if err != nil {
				return err
			}
			for _, key := range aside {
				lines = append(lines, line{State: state, Key: key})
			}
		}
	}
	return c.printLines(lines)
}

func (c *command) printLines(lines []line) error {
	return c.print(lines, func(w io.Writer) {
		fmt.Fprint(w, "STATE\tSINCE\tDUE\tFAILURES\tKEY\n")
		for _, l := range lines {
			state := l.State
			if l.Again {
				state += ", again"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s", state, age(l.Since), age(l.Due), l.Failures, printable(l.Key))
			if l.Reason != "" {
				fmt.Fprintf(w, "\t%s", printable(l.Reason))
			}
			fmt.Fprintln(w)
		}
	})
}

// age says how long ago t is, or in what time it comes.
func age(t time.Time) string {
	switch d := time.Since(t); {
	case t.IsZero():
		return "-"
	case d < 0:
		return "in " + (-d).Round(time.Millisecond).String()
	default:
		return d.Round(time.Millisecond).String() + " ago"
	}
}

// printable quotes a key that would be invisible or change the terminal.
func printable(key string) string {
	if key == "" || strings.ContainsFunc(key, func(r rune) bool { return !strconv.IsPrint(r) || r == utf8.RuneError }) {
		return strconv.Quote(key)
	}
	return key
}

func (c *command) show(ctx context.Context, key string) error {
	var lines []line
	if k, found := c.queue.SnapshotKey(key); found {
		lines = append(lines, lineOf(string(k.State), k))
	}
	given, err := c.queue.GivenUpKey(ctx, key)
	if err != nil {
		return err
	}
	if given != nil {
		lines = append(lines, givenUpLine(*given))
	}
	if len(lines) == 0 {
		return fmt.Errorf("%s is not in the queue, and was not given up", printable(key))
	}
	return c.printLines(lines)
}

func (c *command) retry(ctx context.Context, keys []string) error {
	if c.all {
		given, err := c.queue.GivenUp(ctx, 1<<30)
		if err != nil {
			return err
		}
		for _, k := range given {
			keys = append(keys, k.Key)
		}
		if _, err := c.queue.RequeueSetAside(ctx); err != nil {
			return err
		}
	}
	return each(ctx, keys, "was not given up", c.queue.Retry)
}

// each calls f with each key, and returns an error that names those for which it returned false.
func each(ctx context.Context, keys []string, complaint string, f func(ctx context.Context, key string) (bool, error)) error {
	var errs []error
	for _, key := range keys {
		found, err := f(ctx, key)
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		if !found {
			errs = append(errs, fmt.Errorf("%s %s", printable(key), complaint))
		}
	}
	return errors.Join(errs...)
}
