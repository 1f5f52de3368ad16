package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// processes are the replicas.
type processes struct {
	redisAddr string
	began     time.Time
	orders    int // added so far

	mu      sync.Mutex // guards what follows, and writing to out
	out     io.Writer
	started int
	running map[int]*exec.Cmd
}

func newProcesses(redisAddr string, out io.Writer) *processes {
	return &processes{redisAddr: redisAddr, began: time.Now(), out: out, running: make(map[int]*exec.Cmd)}
}

func (p *processes) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, "%5.1fs  %s\n", time.Since(p.began).Seconds(), fmt.Sprintf(format, args...))
}

// start starts another replica.
func (p *processes) start() error {
	p.mu.Lock()
	p.started++
	number := p.started
	p.mu.Unlock()
	cmd := exec.Command(os.Args[0], "-redis", p.redisAddr, "-replica", fmt.Sprint(number))
	cmd.Env = append(os.Environ(), replicaVariable+"=1")
	lines, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		for s := bufio.NewScanner(lines); s.Scan(); {
			p.say("%s", strings.TrimSpace(s.Text()))
		}
	}()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running[number] = cmd
	return nil
}

// replicaVariable is set in the environment of replicas, for the test of this program.
const replicaVariable = "WORKQUEUE_EXAMPLE_JOBS"

// kill ends a replica without giving it time for anything.
func (p *processes) kill(number int) error {
	p.mu.Lock()
	cmd := p.running[number]
	delete(p.running, number)
	p.mu.Unlock()
	if cmd == nil {
		return fmt.Errorf("no replica %d runs", number)
	}
	p.say("killing replica %d; its keys come again when the lease of %v ends", number, lease)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	return nil
}

func (p *processes) killAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, cmd := range p.running {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	clear(p.running)
}
