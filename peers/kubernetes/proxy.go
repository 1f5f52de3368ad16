package main

import (
	"net"
	"sync"
)

// proxy stands between a replica and the API server.
type proxy struct {
	listener net.Listener
	target   string

	mu      sync.Mutex // guards what follows
	changed *sync.Cond
	// cut: there are no connections, and new ones are closed. stalled: what was sent waits, and arrives later.
	cut, stalled bool
	connections  map[net.Conn]bool
}

func newProxy(target string) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: l, target: target, connections: make(map[net.Conn]bool)}
	p.changed = sync.NewCond(&p.mu)
	go p.serve()
	return p, nil
}

func (p *proxy) serve() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return // It is closed.
		}
		go p.connect(near)
	}
}

func (p *proxy) connect(near net.Conn) {
	far, err := net.Dial("tcp", p.target)
	if err != nil || !p.add(near, far) {
		near.Close()
		if err == nil {
			far.Close()
		}
		return
	}
	var both sync.WaitGroup
	for from, to := range map[net.Conn]net.Conn{near: far, far: near} {
		both.Go(func() {
			p.forward(from, to)
			near.Close()
			far.Close()
		})
	}
	both.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.connections, near)
	delete(p.connections, far)
}

func (p *proxy) add(connections ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range connections {
		p.connections[c] = true
	}
	return !p.cut
}

func (p *proxy) forward(from, to net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			p.mu.Lock()
			for p.stalled {
				p.changed.Wait()
			}
			p.mu.Unlock()
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// set cuts or stalls all connections, or lets them be.
func (p *proxy) set(cut, stalled bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut, p.stalled = cut, stalled
	if cut {
		for c := range p.connections {
			c.Close()
		}
	}
	p.changed.Broadcast()
}

func (p *proxy) close() {
	p.listener.Close()
	p.set(true, false)
}
