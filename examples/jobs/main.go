// Command jobs shows a queue that several processes share. It starts three replicas of itself, which handle
// orders from one queue, and a redis-server (or uses another one, with -redis). One order in ten fails at
// first. Type
//
//	kill 2    to kill a replica in the middle of its work
//	start     to start another one
//	add 50    to add orders
//	quit      to end
//
// and watch what happens to the keys, here and on the debug page. With -demo it types by itself.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/keyedqueue/workqueue/debug"
	"github.com/keyedqueue/workqueue/redisqueue"
	"github.com/redis/go-redis/v9"
)

// lease is short, so that one need not wait for long after a kill.
const lease = 3 * time.Second

func main() {
	log.SetFlags(0)
	redisAddr := flag.String("redis", "", "address of a Redis server; empty starts one")
	httpAddr := flag.String("http", "127.0.0.1:8080", "where the debug page is served; empty means nowhere")
	demo := flag.Bool("demo", false, "add orders, kill a replica, and end when all is done")
	number := flag.Int("replica", 0, "be that replica, for this program itself")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if *number > 0 {
		if err := replica(ctx, *number, *redisAddr, os.Stdout); err != nil {
			log.Fatal(err)
		}
		return
	}
	if err := run(ctx, *redisAddr, *httpAddr, *demo, os.Stdin, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// startRedis starts a server on a free port, which keeps nothing on the disk.
func startRedis(ctx context.Context) (addr string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	addr = l.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	_ = l.Close()
	server := exec.Command("redis-server", "--bind", "127.0.0.1", "--port", port, "--save", "", "--loglevel",
		"warning")
	if err := server.Start(); err != nil {
		return "", nil, fmt.Errorf("%w: install redis-server, or give the address of one with -redis", err)
	}
	stop = func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	}
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		if err = client.Ping(ctx).Err(); err == nil {
			return addr, stop, nil
		}
		if ctx.Err() != nil {
			stop()
			return "", nil, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func openQueue(ctx context.Context, client redis.UniversalClient) (*redisqueue.Queue[string], error) {
	config := redisqueue.Config[string]{Name: "orders", Lease: lease}
	config.Backoff.Base = 500 * time.Millisecond
	return redisqueue.New(ctx, client, config)
}

// run is the program that people start.
func run(ctx context.Context, redisAddr, httpAddr string, demo bool, in io.Reader, out io.Writer) error {
	if redisAddr == "" {
		addr, stop, err := startRedis(ctx)
		if err != nil {
			return err
		}
		defer stop()
		redisAddr = addr
	}
	client := redis.NewClient(&redis.Options{Addr: redisAddr})
	defer client.Close()
	queue, err := openQueue(ctx, client)
	if err != nil {
		return err
	}
	defer func() { _ = end(queue) }()
	if httpAddr != "" {
		page, err := serve(httpAddr, queue)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "debug page: http://%s/\n", page)
	}
	p := newProcesses(redisAddr, out)
	defer p.killAll()
	for range 3 {
		if err := p.start(); err != nil {
			return err
		}
	}
	if demo {
		return p.demo(ctx, queue)
	}
	p.say("type: add 50, kill 2, start, quit")
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(in); s.Scan(); {
			lines <- s.Text()
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case line, ok := <-lines:
			if !ok || line == "quit" {
				return nil
			}
			if err := p.command(ctx, queue, line); err != nil {
				p.say("%v", err)
			}
		}
	}
}

// serve serves the debug page of the queue.
func serve(addr string, queue *redisqueue.Queue[string]) (string, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return "", err
	}
	h := debug.NewHandler(debug.Options{})
	debug.Register(h, "orders", queue)
	go func() { _ = http.Serve(l, h) }()
	return l.Addr().String(), nil
}

// command does what was typed.
func (p *processes) command(ctx context.Context, queue *redisqueue.Queue[string], line string) error {
	word, arg, _ := strings.Cut(strings.TrimSpace(line), " ")
	n, _ := strconv.Atoi(arg)
	switch word {
	case "":
		return nil
	case "add":
		return p.add(ctx, queue, max(n, 1))
	case "kill":
		return p.kill(n)
	case "start":
		return p.start()
	}
	return fmt.Errorf("%q is not add, kill, start or quit", word)
}

// add adds orders, and returns when the server has them.
func (p *processes) add(ctx context.Context, queue *redisqueue.Queue[string], n int) error {
	for range n {
		p.orders++
		queue.Add(fmt.Sprint("order/", p.orders))
	}
	if err := queue.Flush(ctx); err != nil {
		return err
	}
	p.say("added %d orders", n)
	return nil
}

// demo adds orders, kills a replica that holds some, and waits until all are handled. Ctrl-C ends it.
func (p *processes) demo(ctx context.Context, queue *redisqueue.Queue[string]) error {
	if err := p.add(ctx, queue, 30); err != nil {
		return err
	}
	if !sleepSecond(ctx) {
		return nil
	}
	if err := p.kill(2); err != nil {
		return err
	}
	for {
		s := queue.Snapshot(10)
		if s.Stats.Queued+s.Stats.Processing+s.Stats.Waiting == 0 {
			p.say("all orders are handled")
			return nil
		}
		var held []string
		for _, k := range s.Processing {
			held = append(held, k.Key)
		}
		p.say("queued %d, waiting %d, held: %s", s.Stats.Queued, s.Stats.Waiting, strings.Join(held, " "))
		if !sleepSecond(ctx) {
			return nil
		}
	}
}

// sleepSecond returns false if ctx ends, because of Ctrl-C, before a second has passed.
func sleepSecond(ctx context.Context) bool {
	select {
	case <-time.After(time.Second):
		return true
	case <-ctx.Done():
		return false
	}
}
