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

// processes are the replicas. One goroutine uses them; what they print is shown by others.
type processes struct {
	redisAddr string
	began     time.Time
	orders    int // added so far

	started int
	running map[int]*process

	mu  sync.Mutex // guards writing to out
	out io.Writer
}

// process is one replica.
type process struct {
	*os.Process
	ended chan struct{} // closed when it has ended and all that it printed is shown
}

func newProcesses(redisAddr string, out io.Writer) *processes {
	return &processes{redisAddr: redisAddr, began: time.Now(), out: out, running: make(map[int]*process)}
}

func (p *processes) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, "%5.1fs  %s\n", time.Since(p.began).Seconds(), fmt.Sprintf(format, args...))
}

// start starts another replica.
func (p *processes) start() error {
	p.started++
	cmd := exec.Command(os.Args[0], "-redis", p.redisAddr, "-replica", fmt.Sprint(p.started))
	cmd.Env = append(os.Environ(), replicaVariable+"=1")
	lines, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = cmd.Stdout // what it ends with, if it fails
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	p.running[p.started] = &process{cmd.Process, ended}
	go func() {
		defer close(ended)
		for s := bufio.NewScanner(lines); s.Scan(); {
			p.say("%s", strings.TrimSpace(s.Text()))
		}
		_ = cmd.Wait() // After the last line: it closes the pipe.
	}()
	return nil
}

// replicaVariable is set in the environment of replicas, for the test of this program.
const replicaVariable = "WORKQUEUE_EXAMPLE_JOBS"

// kill ends a replica without giving it time for anything.
func (p *processes) kill(number int) error {
	r := p.running[number]
	if r == nil {
		return fmt.Errorf("no replica %d runs", number)
	}
	delete(p.running, number)
	p.say("killing replica %d; others get its keys when the lease of %v ends", number, lease)
	r.end()
	return nil
}

func (p *processes) killAll() {
	for _, r := range p.running {
		r.end()
	}
	clear(p.running)
}

func (r *process) end() {
	_ = r.Kill() // It may have ended by itself.
	<-r.ended
}
