package redisqueue

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
)

// gated is a connection whose writes wait while the network is down, and vanish while it is half open.
type gated struct {
	net.Conn
	gate    *sync.RWMutex
	vanish  *atomic.Bool
	damaged bool
}

func (g *gated) Write(b []byte) (int, error) {
	g.gate.RLock()
	defer g.gate.RUnlock()
	if g.vanish.Load() {
		g.damaged = true
		return len(b), nil
	}
	if g.damaged { // What follows would make no sense.
		return 0, net.ErrClosed
	}
	return g.Conn.Write(b)
}

// proxy forwards connections to a server, holds them up, and cuts them.
type proxy struct {
	listener net.Listener
	target   string
	mu       sync.Mutex
	conns    map[net.Conn]bool
	closed   bool
	gate     sync.RWMutex // locked while the network is down
	// What the replica, or the server, sends vanishes, and both believe that the connections are whole.
	toServer, toReplica atomic.Bool
	// cutAfter returns after how many bytes from the server a connection is cut, never if negative.
	cutAfter func() int
}

func startProxy(t testing.TB, target string, cutAfter func() int) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	p := &proxy{listener: l, target: target, conns: make(map[net.Conn]bool), cutAfter: cutAfter}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(c)
		}
	}()
	t.Cleanup(p.close)
	return p
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

func (p *proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		c.Close()
		return false
	}
	p.conns[c] = true
	return true
}

func (p *proxy) serve(c net.Conn) {
	s, err := net.Dial("tcp", p.target)
	if err != nil {
		c.Close()
		return
	}
	if !p.keep(c) || !p.keep(s) {
		c.Close()
		s.Close()
		return
	}
	end := func() {
		c.Close()
		s.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, c)
		delete(p.conns, s)
	}
	go func() {
		_, _ = io.Copy(&gated{Conn: s, gate: &p.gate, vanish: &p.toServer}, c)
		end()
	}()
	defer end()
	back := &gated{Conn: c, gate: &p.gate, vanish: &p.toReplica}
	if n := p.cutAfter(); n >= 0 {
		_, _ = io.CopyN(back, s, int64(n))
		return
	}
	_, _ = io.Copy(back, s)
}

// close cuts the replica off for good, as if its machine had died.
func (p *proxy) close() {
	p.listener.Close()
	p.mu.Lock()
	p.closed = true
	conns := p.conns
	p.conns = make(map[net.Conn]bool)
	p.mu.Unlock()
	for c := range conns {
		c.Close()
	}
}

// faulty is a hook of a client whose calls fail.
type faulty struct {
	// deaf: scripts are executed, and their replies are lost. down: nothing reaches the server.
	deaf, down atomic.Bool
	// gate: scripts wait while it is locked.
	gate sync.RWMutex
}

// faultyClient returns a client of the server that fails when it should.
func (s *server) faultyClient() (redis.UniversalClient, *faulty) {
	client, f := newClient(s.t, &redis.Options{Addr: s.addr, MaxRetries: -1}), &faulty{}
	client.AddHook(hook(f.process))
	return hooked{client}, f
}

// hooked is a client whose queue cannot open connections of its own, on which there would
// be no hook.
type hooked struct{ *redis.Client }

var errFaulty = errors.New("the test does not let this call succeed")

func (f *faulty) process(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		script := strings.HasPrefix(cmd.Name(), "eval")
		if script {
			f.gate.RLock()
			defer f.gate.RUnlock()
		}
		if f.down.Load() {
			cmd.SetErr(errFaulty)
			return errFaulty
		}
		err := next(ctx, cmd)
		if script && f.deaf.Load() {
			cmd.SetErr(errFaulty)
			return errFaulty
		}
		return err
	}
}

// hook is a hook of a client that is about single commands.
type hook func(next redis.ProcessHook) redis.ProcessHook

func (hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return h(next) }
