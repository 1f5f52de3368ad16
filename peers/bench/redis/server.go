package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// server is a redis-server of this program's own.
type server struct {
	addr  string
	dir   string
	cmd   *exec.Cmd
	admin *redis.Client
}

func startServer(appendOnly string) (*server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	addr := l.Addr().String()
	l.Close()
	_, port, _ := net.SplitHostPort(addr)
	dir, err := os.MkdirTemp("", "bench-redis")
	if err != nil {
		return nil, err
	}
	args := []string{"--bind", "127.0.0.1", "--port", port, "--dir", dir, "--save", "", "--loglevel", "warning",
		"--appendonly", "no"}
	if appendOnly != "no" {
		args = append(args[:len(args)-1], "yes", "--appendfsync", appendOnly)
	}
	s := &server{addr: addr, dir: dir, cmd: exec.Command("redis-server", args...)}
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	s.admin = redis.NewClient(&redis.Options{Addr: addr})
	for range 1000 {
		if err = s.admin.Ping(background).Err(); err == nil {
			return s, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.stop()
	return nil, err
}

func (s *server) stop() {
	s.admin.Close()
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	_ = os.RemoveAll(s.dir)
}

func (s *server) client(goroutines int) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: s.addr, PoolSize: max(20, min(goroutines, 100))})
}

func (s *server) flush() error { return s.admin.FlushAll(background).Err() }

// info returns a field of INFO.
func (s *server) info(section, field string) float64 {
	for range 10 { // With an append-only file a server may hang for seconds.
		text, _ := s.admin.Info(background, section).Result()
		for line := range strings.Lines(text) {
			if value, ok := strings.CutPrefix(strings.TrimSpace(line), field+":"); ok {
				f, _ := strconv.ParseFloat(value, 64)
				return f
			}
		}
	}
	panic(fmt.Sprint("the server does not say its ", field))
}

func (s *server) memory() int { return int(s.info("memory", "used_memory")) }

func (s *server) cpu() time.Duration {
	return time.Duration((s.info("cpu", "used_cpu_user") + s.info("cpu", "used_cpu_sys")) * float64(time.Second))
}
