package redisqueue

import (
	"io"
	"net"
	"sync"
	"testing"
)

// gated is a connection whose writes wait while the network is down.
type gated struct {
	net.Conn
	gate *sync.RWMutex
}

func (g gated) Write(b []byte) (int, error) {
	g.gate.RLock()
	defer g.gate.RUnlock()
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
	// cutAfter returns after how many bytes from the server a connection is cut, never if negative.
	cutAfter func() int
}

func startProxy(t testing.TB, target string, cutAfter func() int) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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
		_, _ = io.Copy(gated{s, &p.gate}, c)
		end()
	}()
	defer end()
	if n := p.cutAfter(); n >= 0 {
		_, _ = io.CopyN(gated{c, &p.gate}, s, int64(n))
		return
	}
	_, _ = io.Copy(gated{c, &p.gate}, s)
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
