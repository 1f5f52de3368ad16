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
	"sync"
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
		interval, err := time.ParseDuration(os.Getenv(consumerVariable + "_INTERVAL"))
		if err != nil {
			panic(err)
		}
		s := asynqServer(client, "latency", 8, interval)
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

// link is a producer in this process and a consumer in another one.
type link struct {
	add   func(key string)
	lines *bufio.Scanner // a latency in nanoseconds for each key that is a time
	close func()
}

// connect starts a consumer with eight workers. An asynq consumer looks for new tasks every interval.
func connect(s *server, im impl, interval time.Duration) (*link, error) {
	if err := s.flush(); err != nil {
		return nil, err
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), consumerVariable+"="+s.addr, consumerVariable+"_IMPL="+im.name,
		consumerVariable+"_INTERVAL="+interval.String())
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	client := s.client(8)
	q, err := redisqueue.New(background, client, redisqueue.Config[string]{Name: "latency", Logger: quiet})
	if err != nil {
		return nil, err
	}
	c := asynq.NewClientFromRedisClient(client)
	l := &link{lines: bufio.NewScanner(out)}
	l.close = func() {
		q.ShutDown()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = end(q)
		client.Close()
	}
	l.add = q.Add
	if im.name == "asynq" {
		l.add = func(key string) {
			if _, err := c.Enqueue(asynq.NewTask("t", []byte(key)), asynq.Queue("latency"),
				asynq.Unique(time.Hour)); err != nil {
				log.Print(err)
			}
		}
	}
	// The first key waits for connections.
	if _, err := l.ping(); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// ping adds a key that is the time.
func (l *link) ping() (latency time.Duration, err error) {
	l.add(strconv.FormatInt(time.Now().UnixNano(), 10))
	return l.next()
}

func (l *link) next() (time.Duration, error) {
	if !l.lines.Scan() {
		return 0, fmt.Errorf("the consumer has ended: %w", l.lines.Err())
	}
	n, err := strconv.ParseInt(l.lines.Text(), 10, 64)
	return time.Duration(n), err
}

// capacity returns how many keys a second go from eight goroutines here to the consumer.
func (l *link) capacity() (float64, error) {
	const n = 5000
	began := time.Now()
	split(8, n, func(i int) { l.add(fmt.Sprintf("%d/%dl", began.UnixNano(), i)) })
	_, err := l.ping() // It is behind the others in the line.
	return n / time.Since(began).Seconds(), err
}

// half is the load that is half of what a pair of processes manages.
const half = -1

// latency adds keys in this process, and returns percentiles of the milliseconds until another one got them,
// and how many keys a second were added beside them.
func latency(s *server, im impl, load float64, interval time.Duration) (percentiles [3]float64, _ float64,
	err error) {
	l, err := connect(s, im, interval)
	if err != nil {
		return percentiles, 0, err
	}
	defer l.close()
	keys, pause := 300, 10*time.Millisecond
	if load != 0 {
		keys, pause = 400, 5*time.Millisecond
	}
	if load == half {
		if _, err := l.capacity(); err != nil { // to warm up
			return percentiles, 0, err
		}
		full, err := l.capacity()
		if err != nil {
			return percentiles, 0, err
		}
		load = full / 2
	}
	time.Sleep(time.Second)
	began := time.Now()
	stop := make(chan struct{})
	var loading sync.WaitGroup
	defer loading.Wait()
	defer sync.OnceFunc(func() { close(stop) })()
	if load > 0 {
		for g := range 8 {
			loading.Go(func() {
				for sent := 0; ; sent++ {
					select {
					case <-stop:
						return
					case <-time.After(time.Until(began.Add(time.Duration(float64(8*sent) / load * float64(time.Second))))):
					}
					l.add(fmt.Sprintf("%d/%d/%dl", began.UnixNano(), g, sent))
				}
			})
		}
	}
	go func() {
		for i := range keys {
			time.Sleep(time.Until(began.Add(time.Duration(i+1) * pause)))
			l.add(strconv.FormatInt(time.Now().UnixNano(), 10))
		}
	}()
	var times []float64
	for len(times) < keys {
		d, err := l.next()
		if err != nil {
			return percentiles, load, err
		}
		times = append(times, d.Seconds()*1000)
	}
	slices.Sort(times)
	at := func(p float64) float64 { return times[min(int(p*float64(len(times))), len(times)-1)] }
	return [3]float64{at(0.5), at(0.99), at(0.999)}, load, nil
}
