package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/keyedqueue/workqueue/redisqueue"
	"github.com/redis/go-redis/v9"
)

type order struct {
	Shop   string
	Number int
}

// The commands show and change a queue with keys of a type that they do not know.
func TestCommands(t *testing.T) {
	server := miniredis.RunT(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	config := redisqueue.Config[order]{Name: "orders", Shards: 2, Logger: slog.New(slog.DiscardHandler)}
	q, err := redisqueue.New(ctx, client, config)
	if err != nil {
		t.Fatal(err)
	}
	defer q.ShutDown()
	call := func(args ...string) (string, error) {
		var out bytes.Buffer
		err := run(ctx, append([]string{"-url", "redis://" + server.Addr(), "-queue", "orders"}, args...), &out)
		return out.String(), err
	}
	want := func(words string, args ...string) {
		t.Helper()
		out, err := call(args...)
		if err != nil {
			t.Errorf("%q: %v", args, err)
		}
		for _, word := range strings.Split(words, "|") {
			if !strings.Contains(out, word) {
				t.Errorf("%q does not print %q:\n%s", args, word, out)
			}
		}
	}
	for i := range 3 {
		q.Add(order{"a", i})
	}
	q.AddAfter(order{"later", 1}, time.Hour)
	q.GiveUp(order{"bad", 1}, 6, errors.New("the card was declined"))
	if err := q.Flush(ctx); err != nil {
		t.Fatal(err)
	}

	want("orders\n", "queues")
	want("3, the oldest for|waiting|given up    1|2 shards, keys: {Shop string, Number int}", "stats")
	want(`{"Shop":"a","Number":1}|{"Shop":"later","Number":1}|the card was declined|in 59m`, "ls")
	want(`queued`, "show", `{"Shop":"a","Number":1}`)
	want(`declined`, "show", `{"Shop":"bad","Number":1}`)
	out, err := call("ls", "queued", "-json", "-n", "2")
	var lines []line
	if err := errors.Join(err, json.Unmarshal([]byte(out), &lines)); err != nil || len(lines) != 2 || lines[0].State != "queued" || lines[0].Since.IsZero() {
		t.Errorf("ls -json: %v %+v\n%s", err, lines, out)
	}
	want("", "rm", `{"Shop":"a","Number":1}`)
	want("", "retry", "-all")
	want(`"Queued": 3`, "stats", "-json")
	want("", "pause")
	want("paused      true", "stats")
	want("", "resume")
	want("paused      false", "stats")
	for wanted, args := range map[string][]string{
		"is not in the queue":       {"rm", `{"Shop":"a","Number":1}`},
		"was not given up":          {"retry", "--", "-x"},
		"nowhere is not in":         {"show", "nowhere"},
		"there is no command":       {"frobnicate"},
		"there is no state":         {"ls", "lost"},
		"add -yes":                  {"purge"},
		"has no arguments":          {"stats", "orders"},
		"flag provided but":         {"stats", "-frobnicate"},
		"which command":             {},
		"no such queue":             {"-queue", "other", "stats"},
		"Name it with -queue":       {"-queue", "", "stats"},
		"invalid URL scheme":        {"-url", "http://x", "stats"},
		"retry needs keys, or -all": {"retry"},
	} {
		if out, err := call(args...); err == nil || !strings.Contains(err.Error(), wanted) {
			t.Errorf("%q: %v, want an error with %q\n%s", args, err, wanted, out)
		}
	}
	if out, err := call("-h"); !errors.Is(err, flag.ErrHelp) || !strings.Contains(out, "retry KEY") || !strings.Contains(out, "-timeout") {
		t.Errorf("-h: %v\n%s", err, out)
	}
	want("", "purge", "-yes")
	if st := q.Stats(); st.Queued+st.Waiting != 0 {
		t.Errorf("after purge: %+v", st)
	}
}
