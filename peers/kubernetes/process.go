package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A process is a child with a log file of its own. It ends with this program, even if that is killed.
type process struct {
	name  string
	log   string // The file's path.
	cmd   *exec.Cmd
	ended chan struct{} // Closed when the process has ended.
}

// startProcess starts a program whose output goes to the file name.log in dir, after what an earlier process
// of that name has written there.
func startProcess(dir, name, program string, args ...string) (*process, error) {
	p := &process{name: name, log: filepath.Join(dir, name+".log"), ended: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd = exec.Command(program, args...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait() // How it ended is in ProcessState.
		close(p.ended)
	}()
	return p, nil
}

// stop ends the process with SIGTERM, and after half a minute with SIGKILL.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(30 * time.Second):
		p.kill()
	}
}

// kill ends the process with SIGKILL, and returns when it has ended.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// peakMemory returns the largest resident size of a process that has ended, in bytes.
func (p *process) peakMemory() int64 {
	usage, ok := p.cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	return usage.Maxrss << 10
}

// await calls ready until it returns no error. It gives up when ctx or the process ends, with the end of its
// log.
func (p *process) await(ctx context.Context, timeout time.Duration, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.ended:
			return fmt.Errorf("%s has ended (%v):\n%s", p.name, p.cmd.ProcessState, p.tail())
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready after %v: %w\n%s", p.name, timeout, err, p.tail())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// tail returns the end of the process's log.
func (p *process) tail() []byte {
	data, _ := os.ReadFile(p.log)
	return data[max(0, len(data)-4000):]
}

// freePorts returns ports of the loopback interface that are free. Ports that the system hands out by itself
// would not do: before a server starts, or while it is down, a connection may get its port.
func freePorts(n int) ([]string, error) {
	const first, ports = 10000, 22000
	var free []string
	for i := 0; i < 1000 && len(free) < n; i++ {
		port := strconv.Itoa(first + (os.Getpid()*199+i)%ports)
		l, err := net.Listen("tcp", "127.0.0.1:"+port)
		if err == nil {
			l.Close()
			free = append(free, port)
		}
	}
	if len(free) < n {
		return nil, errors.New("no port is free")
	}
	return free, nil
}

// adoptOrphans makes every descendant whose parent ends a child of this process, even in a process group of its own.
func adoptOrphans() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// killChildren kills all children of this process, and returns how many there were.
func killChildren() (killed int, err error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	for _, name := range stats {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue // It has ended.
		}
		// The name in parentheses may have anything in it. After it come the state and the parent.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) < 2 || fields[0] == "Z" || fields[1] != strconv.Itoa(os.Getpid()) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil &&
			syscall.Kill(pid, syscall.SIGKILL) == nil {
			killed++
		}
	}
	return killed, nil
}
