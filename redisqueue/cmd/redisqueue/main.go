// Command redisqueue shows and changes queues of package redisqueue on a server, for people on call. It
// knows nothing of the programs that use them: keys are shown as the server has them.
package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/keyedqueue/workqueue/operate"
	"github.com/keyedqueue/workqueue/redisqueue"
	"github.com/redis/go-redis/v9"
)

const usage = `redisqueue shows and changes work queues in Redis or Valkey.

Usage: redisqueue [flags] COMMAND [arguments]

  queues           the names of all queues on the server
  stats            how many keys are in which state
  ls [STATE...]    keys that are queued, processing, waiting, failing or givenup; all without one
  show KEY         what the server knows of a key: its state, holder and fence, priority, failures, causes

  add KEY...       queues keys; -after 5m: when that time has passed
  retry KEY...     queues keys again that were given up; -all: all of them
  drop KEY...      forgets that keys were given up; -all, as for retry, needs -yes
  rm KEY...        removes keys from the queue and from what was given up; a worker that holds one
                   finishes it
  release KEY...   takes keys from workers that hang: others get them, and late answers change nothing
  pause, resume    whether any replica gets keys; pause -for 1h ends by itself
  purge            deletes the queue with all its keys (needs -yes)

All but queues need -queue. Keys are written as the server has them: strings and numbers as they are,
structs as JSON. To the server, JSON with other spaces is another key. Keys that cannot be printed are shown
as $'…', which bash and other shells take for the same key. Flags may stand anywhere; what is behind "--" is
no flag.

Exit codes: 0 it is as printed, or done; 1 there is no such key or queue; 2 wrong usage; 3 the server did not
answer, or refused: what was not printed is not known, and what was not reported as done may be done or not.

Flags:
`

var (
	// errUsage is an error that -h would have prevented.
	errUsage = errors.New("see redisqueue -h")
	// errAbsent is the error for a key that is not where it should be.
	errAbsent = errors.New("there is no such key")
)

// command is one call of the program.
type command struct {
	out   *bufio.Writer
	notes []string // remarks behind the answer

	json  bool
	all   bool
	yes   bool
	limit int
	after time.Duration
	// pauseFor is zero for a pause without an end.
	pauseFor time.Duration

	server     server
	client     redis.UniversalClient
	name       string
	queue      *redisqueue.Admin
	timer      *time.Timer // gives up
	answeredAt time.Time
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	// A second interrupt ends the program at once, also if nobody reads what it prints.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the program. It returns its exit code.
func run(ctx context.Context, args []string, out, errs io.Writer) int {
	redis.SetLogger(silence{})
	c := &command{out: bufio.NewWriter(out)}
	err := c.run(ctx, args)
	if flushed := c.out.Flush(); err == nil {
		err = flushed
	}
	for _, note := range c.notes {
		fmt.Fprintln(errs, "redisqueue:", note)
	}
	if err == nil {
		return 0
	}
	fmt.Fprintln(errs, "redisqueue:", message(err))
	switch {
	case errors.Is(err, errUsage):
		return 2
	case errors.Is(err, errAbsent), errors.Is(err, redisqueue.ErrNoQueue):
		return 1
	}
	return 3
}

// silence is go-redis's logger: the error that the command returns says enough.
type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

func (c *command) run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("redisqueue", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	c.server.flags(flags)
	flags.StringVar(&c.name, "queue", "", "the `name` of the queue")
	flags.BoolVar(&c.json, "json", false,
		"for queues, stats, ls and show: prints JSON, for ls a line for each key. A key that is not UTF-8\n"+
			"is printed as without -json")
	flags.IntVar(&c.limit, "n", 20,
		"for ls: at most so many `keys` of each state; 0 for all of them,\nin no order")
	flags.DurationVar(&c.after, "after", 0, "for add: queues the keys when that `time` has passed")
	flags.DurationVar(&c.pauseFor, "for", 0, "for pause: ends by itself after that `time`")
	flags.BoolVar(&c.all, "all", false, "for retry and drop: all keys that were given up")
	flags.BoolVar(&c.yes, "yes", false, "for purge and drop -all: really")
	// Flags may stand before and after the command, keys that look like flags behind a "--".
	var words, behind []string
	if i := slices.Index(args, "--"); i >= 0 {
		args, behind = args[:i], args[i+1:]
	}
	for {
		if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
			fmt.Fprint(c.out, usage)
			flags.SetOutput(c.out)
			flags.PrintDefaults()
			return nil
		} else if err != nil {
			return fmt.Errorf("%w; %w", err, errUsage)
		}
		if flags.NArg() == 0 {
			break
		}
		words, args = append(words, flags.Arg(0)), flags.Args()[1:]
	}
	words = append(words, behind...)
	if len(words) == 0 {
		return fmt.Errorf("which command? %w", errUsage)
	}
	if err := c.check(flags, words[0], words[1:]); err != nil {
		return fmt.Errorf("%w; %w", err, errUsage)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var err error
	if c.client, err = c.server.open(); err != nil {
		return err
	}
	c.timer = time.AfterFunc(c.server.timeout, cancel)
	c.answered()
	if err = c.do(ctx, words[0], words[1:]); err != nil && time.Since(c.answeredAt) >= c.server.timeout {
		err = fmt.Errorf("the server has not answered for %v, or has refused: %w", c.server.timeout, err)
	}
	return err
}

// answered notes that the server has done a part of what it was asked for.
func (c *command) answered() {
	c.answeredAt = time.Now()
	c.timer.Reset(c.server.timeout)
}

// note makes run print a remark behind the answer.
func (c *command) note(format string, args ...any) {
	c.notes = append(c.notes, fmt.Sprintf(format, args...))
}

func (c *command) do(ctx context.Context, name string, args []string) (err error) {
	if name == "queues" {
		return c.queues(ctx)
	}
	c.queue, err = redisqueue.Attach(ctx, c.client, c.name)
	switch {
	case errors.Is(err, redisqueue.ErrIncompatible):
		return fmt.Errorf("%w; take the command of the version that the queue's program requires: "+
			"in its module, go run github.com/keyedqueue/workqueue/redisqueue/cmd/redisqueue", err)
	case err != nil:
		return err
	}
	c.answered()
	return commands[name].do(c, ctx, args)
}

// What a command with keys needs.
const needsKeys, needsKeysOrAll = "keys", "keys, or -all"

// commands are what the program does, what arguments each needs (none if that is empty), and which flags are
// for it alone.
var commands = map[string]struct {
	needs, flags string
	do           func(c *command, ctx context.Context, args []string) error
}{
	"queues":  {"", "json", nil}, // It needs no queue.
	"stats":   {"", "json", (*command).stats},
	"ls":      {"states, or nothing", "json n", (*command).list},
	"show":    {"one key", "json", (*command).show},
	"add":     {needsKeys, "after", (*command).add},
	"retry":   {needsKeysOrAll, "all", change("queued again", (*redisqueue.Admin).RetryGivenUp)},
	"drop":    {needsKeysOrAll, "all yes", change("dropped", (*redisqueue.Admin).ForgetGivenUp)},
	"rm":      {needsKeys, "", change("removed", (*redisqueue.Admin).Remove)},
	"release": {needsKeys, "", change("released", (*redisqueue.Admin).Release)},
	"pause": {"", "for", func(c *command, ctx context.Context, _ []string) error {
		return c.queue.Pause(ctx, cmp.Or(c.pauseFor, operate.UntilResumed))
	}},
	"resume": {"", "", func(c *command, ctx context.Context, _ []string) error { return c.queue.Resume(ctx) }},
	"purge":  {"", "yes", func(c *command, ctx context.Context, _ []string) error { return c.queue.Purge(ctx) }},
}

// check returns an error for what -h would have prevented.
func (c *command) check(flags *flag.FlagSet, name string, args []string) error {
	if _, known := commands[name]; !known {
		return fmt.Errorf("there is no command %q", name)
	}
	return cmp.Or(c.checkFlags(flags, name), c.checkArguments(name, args))
}

func (c *command) checkFlags(flags *flag.FlagSet, name string) (err error) {
	flags.Visit(func(f *flag.Flag) {
		isOwn := slices.Contains([]string{"json", "n", "after", "for", "all", "yes"}, f.Name)
		if isOwn && !slices.Contains(strings.Fields(commands[name].flags), f.Name) {
			err = fmt.Errorf("-%s is not for %s", f.Name, name)
		}
	})
	switch {
	case err != nil:
		return err
	case name != "queues" && c.name == "":
		return errors.New("which queue? Name it with -queue; `redisqueue queues` lists them")
	case !c.yes && (name == "purge" || name == "drop" && c.all):
		return errors.New("this forgets keys, for all replicas: add -yes if that is meant")
	case min(c.after, c.pauseFor, time.Duration(c.limit)) < 0 || c.server.timeout <= 0:
		return errors.New("-n, -after and -for must not be negative, and -timeout must be positive")
	}
	return nil
}

func (c *command) checkArguments(name string, args []string) error {
	command := commands[name]
	noState := slices.IndexFunc(args, func(list string) bool { return !slices.Contains(states, list) })
	switch {
	case (command.needs == "" || c.all) && len(args) > 0:
		return fmt.Errorf("%s has no arguments here: %q", name, args)
	case name == "ls" && noState >= 0:
		return fmt.Errorf("there is no state %q, only %s", args[noState], strings.Join(states, ", "))
	case name == "show" && len(args) != 1,
		strings.HasPrefix(command.needs, needsKeys) && len(args) == 0 && !c.all:
		return fmt.Errorf("%s needs %s", name, command.needs)
	}
	return nil
}
