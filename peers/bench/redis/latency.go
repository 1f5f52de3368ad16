package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"github.com/keyedqueue/workqueue/redisqueue"
	"github.com/redis/go-redis/v9"
)

// consumerVariable is set in the process that gets the keys whose latency is measured.
const consumerVariable = "WORKQUEUE_BENCH_CONSUMER"

// consume prints how long ago each key was added. Keys are times. Those that end in "l" are only load.
func consume(addr, name string) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	got := func(key string) {
		now := time.Now().UnixNano()
		if strings.HasSuffix(key, "l") {
			return
		}
		if n, err := strconv.ParseInt(key, 10, 64); err == nil {
			_, _ = os.Stdout.WriteString(strconv.FormatInt(now-n, 10) + "\n") // in one call, so that lines stay whole
		}
	}
	switch name {
	case "asynq":
		s := asynqServer(client, "latency", 8, 0)
		_ = s.Run(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
			got(string(t.Payload()))
			return nil
		}))
	default:
		q, err := ours(client, "latency")
		if err != nil {
			panic(err)
		}
		for range 8 {
			go func() {
				for {
					key, down := q.Get()
					if down {
						return
					}
					got(key)
					q.Done(key)
				}
			}()
		}
		select {}
	}
}

// latency adds keys in this process, and returns percentiles of the milliseconds until another one got them.
func latency(s *server, im impl, idle bool) ([3]float64, error) {
	if err := s.flush(); err != nil {
		return [3]float64{}, err
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), consumerVariable+"="+s.addr, consumerVariable+"_IMPL="+im.name)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return [3]float64{}, err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return [3]float64{}, err
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	client := s.client(8)
	defer client.Close()
	q, err := redisqueue.New(background, client, redisqueue.Config[string]{Name: "latency", Logger: quiet})
	if err != nil {
		return [3]float64{}, err
	}
	defer q.ShutDown()
	c := asynq.NewClientFromRedisClient(client)
	add := func(key string) {
		if im.name == "asynq" {
			if _, err := c.Enqueue(asynq.NewTask("t", []byte(key)), asynq.Queue("latency"), asynq.Unique(time.Hour)); err != nil {
				log.Print(err)
			}
		} else {
			q.Add(key)
		}
	}
	lines := bufio.NewScanner(out)
	add(strconv.FormatInt(time.Now().UnixNano(), 10)) // The first one is not measured: it waits for connections.
	lines.Scan()
	time.Sleep(time.Second)
	// Half load is half of what asynq manages on such a machine, for both.
	keys, pause, load := 300, 10*time.Millisecond, 0
	if !idle {
		keys, pause, load = 400, 5*time.Millisecond, 12
	}
	began := time.Now()
	for i := range keys {
		for j := range load {
			add(fmt.Sprintf("%d/%d/%dl", began.UnixNano(), i, j))
		}
		add(strconv.FormatInt(time.Now().UnixNano(), 10))
		time.Sleep(time.Until(began.Add(time.Duration(i+1) * pause)))
	}
	var times []float64
	for len(times) < keys && lines.Scan() {
		n, err := strconv.ParseFloat(lines.Text(), 64)
		if err != nil {
			return [3]float64{}, err
		}
		times = append(times, n/1e6)
	}
	slices.Sort(times)
	at := func(p float64) float64 { return times[min(int(p*float64(len(times))), len(times)-1)] }
	return [3]float64{at(0.5), at(0.99), at(0.999)}, nil
}
