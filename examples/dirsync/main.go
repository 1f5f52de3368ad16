// Command dirsync keeps a directory equal to another one. It is an example of what a keyed work
// queue is for: paths are the keys, the file system's events add them, a few workers make them
// equal one by one. README.md says where to look for what; -h explains how to run it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

const usage = `Usage: dirsync [flags] SOURCE DEST

Keeps DEST equal to SOURCE: copies, updates, creates and removes until both hold
the same, and goes on doing so whenever something changes, until Ctrl-C.

  dirsync -once ~/notes /backup/notes     bring up to date, and end
  dirsync ~/notes /backup/notes           keep up to date

DEST is created if need be. WHAT DEST HAS AND SOURCE HAS NOT IS REMOVED. dirsync
refuses to start with a SOURCE that is empty and a DEST that is not, or with one
of them inside the other.

What is kept equal: the content, permission bits and modification times of files
and directories, and where links lead. Owners, set-user-ID and similar bits,
extended attributes and the times of links are not copied. A file with the same
size and modification time on both sides is taken for unchanged.

Symbolic links are never followed, on either side. A link in SOURCE is made
again in DEST if it is relative and leads to somewhere inside SOURCE, whether or
not anything is there. Any other link is skipped with a note: an absolute one,
one that leads out, and one with ".." behind a name ("a/../b"). A link that is
in DEST where SOURCE has a directory is replaced, never written through.
Named pipes, sockets and devices are skipped with a note. Whatever DEST has
under a skipped name is left alone.

A file is written to a temporary file beside its target (.dirsync-*.tmp) and
renamed, so a reader never sees half of it. Names of this form are never copied;
those that an earlier run left behind in DEST are removed.

With -http localhost:8080 a browser shows at http://localhost:8080/ which paths
are worked on, which fail and why, and which wait, until dirsync has ended. The queue's
metrics for Prometheus are at /metrics.

Ctrl-C (or SIGTERM) ends dirsync. With -once it stops at once and says what is
left. Otherwise it finishes what is queued first, and a second Ctrl-C stops it
at once. If SOURCE or DEST itself disappears or is replaced, dirsync ends with
an error and removes nothing more.

On a terminal a line shows the progress of the first pass (not with -v).

Exit codes: 0 done, or ended by Ctrl-C after finishing what was queued; 1 with
-once, something could not be synced or Ctrl-C came first, and otherwise: the
drain took too long, or SOURCE or DEST disappeared; 2 bad arguments.

The summary counts: paths seen (names found by listing directories), events
(from the file system), merged (a path was asked for that was waiting in the
queue already), copied (new files and links), updated (existing ones), removed
(a directory and all below it count once), retried, failed, and bytes copied.

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
	rep := newReport(stderr)
	flags := flag.NewFlagSet("dirsync", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // errors are reported below, in our own words
	flags.BoolVar(&o.once, "once", false, "sync everything once, print what was done, and end")
	flags.IntVar(&o.workers, "workers", 4, "how many paths are worked on at the same time")
	flags.DurationVar(&o.rescan, "rescan", time.Minute, "how often to look at every path, in case an event was lost; 0: never")
	flags.DurationVar(&o.settle, "settle", 500*time.Millisecond, "copy a file when it has not been written to for this long, and remove what has been missing from SOURCE for this long")
	flags.IntVar(&o.maxRetries, "max-retries", 8, "how often to retry a path before giving up on it until its next event or rescan")
	flags.DurationVar(&o.drainTimeout, "drain-timeout", 30*time.Second, "how long to finish what is queued after Ctrl-C")
	flags.StringVar(&o.http, "http", "", "show what is in the queue at this `address` while running, for instance localhost:8080; all who can reach it see the names of files")
	flags.BoolVar(&rep.verbose, "v", false, "print every path that is changed or retried")

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
		fmt.Fprintf(stderr, "dirsync: %v\nUsage: dirsync [flags] SOURCE DEST (dirsync -h explains)\n", err)
		return 2
	}

	rep.watching = !o.once
	rep.progress = !rep.verbose && isTerminal(stderr)
	err = dirsync(ctx, o, rep)
	failed := rep.summary(stdout)
	if err != nil {
		rep.say("%s", strings.ReplaceAll(err.Error(), "\n", "; ")) // errors.Join has a line for each
		return 1
	}
	if o.once && failed > 0 {
		return 1
	}
	return 0
}

// check completes the options with the two directories and, last, the server.
func (o *options) check(args []string) (err error) {
	switch {
	case len(args) != 2:
		return fmt.Errorf("want two arguments, SOURCE and DEST, behind the flags; got %d: %q", len(args), args)
	case o.workers < 1 || o.workers > 1024:
		return fmt.Errorf("-workers %d: want 1 to 1024", o.workers)
	case o.rescan < 0:
		return fmt.Errorf("-rescan %v: want 0 or more", o.rescan)
	case o.settle < 10*time.Millisecond:
		// File systems keep time in steps of a few milliseconds. A file that changes twice
		// within one step looks unchanged, unless it is left alone for longer than that.
		return fmt.Errorf("-settle %v: want 10ms or more", o.settle)
	case o.maxRetries < 0:
		return fmt.Errorf("-max-retries %d: want 0 or more", o.maxRetries)
	case o.drainTimeout <= 0:
		return fmt.Errorf("-drain-timeout %v: want more than 0", o.drainTimeout)
	}
	if o.source, err = resolveSource(args[0]); err != nil {
		return err
	}
	if o.dest, err = resolveDest(args[1]); err != nil {
		return err
	}
	if err := checkApart(o.source, o.dest); err != nil {
		return err
	}
	if err := checkNotEmpty(o.source, o.dest); err != nil {
		return err
	}
	if o.http != "" {
		o.server, err = newServer(o.http)
	}
	return err
}
