package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"net"
	"net/url"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
)

// server is where the queues are, and how to get there.
type server struct {
	url           string
	cluster       bool
	sentinel      string // the name of the master, empty without Sentinel
	ca, cert, key string // files
	name          string // in the server's certificate, empty for the host
	timeout       time.Duration
}

func (s *server) flags(flags *flag.FlagSet) {
	// The value of $REDIS_URL is no default, because -h and errors would print it, with its password.
	flags.StringVar(&s.url, "url", "",
		"`where` the server is: redis://user:password@host:port/db, rediss:// for TLS, or\n"+
			"unix:///path; $REDIS_URL if empty, redis://127.0.0.1:6379 if that is, too. Others on this\n"+
			"machine see the arguments of a command: keep passwords in $REDIS_URL")
	flags.BoolVar(&s.cluster, "cluster", false,
		"the server is a node of a Cluster; ?addr=host:port in the URL names further ones")
	flags.StringVar(&s.sentinel, "sentinel", "",
		"the server is a Sentinel that watches the master of this `name`; ?addr=host:port names\n"+
			"further ones, ?sentinel_username= and ?sentinel_password= are for them")
	flags.StringVar(&s.ca, "cacert", "",
		"a PEM `file` with the CA of the server's certificate; the system's CAs if empty")
	flags.StringVar(&s.cert, "cert", "", "a PEM `file` with the client's certificate")
	flags.StringVar(&s.key, "key", "", "a PEM `file` with the private key of -cert")
	flags.StringVar(&s.name, "sni", "", "the `name` in the server's certificate, if it is not the URL's host")
	flags.DurationVar(&s.timeout, "timeout", 10*time.Second,
		"gives up when the server has not answered for so long")
}

// silent returns the error for a server that does not answer.
func (s *server) silent() error { return fmt.Errorf("the server has not answered for %v", s.timeout) }

// errURL does not quote the URL, nor what the parsers say of it: a password that is not escaped shows up
// anywhere in these.
var errURL = fmt.Errorf("the URL of the server makes no sense: it should look like "+
	"redis://user:password@host:6379/0, with rediss:// for TLS or unix:///path?db=0, "+
	"special characters of the password as %%40 for @; %w", errUsage)

// open returns a client whose connections end with ctx: by default go-redis does not interrupt a call then.
func (s *server) open(ctx context.Context) (redis.UniversalClient, error) {
	if s.cluster && s.sentinel != "" {
		return nil, fmt.Errorf("-cluster and -sentinel exclude each other; %w", errUsage)
	}
	u, err := url.Parse(cmp.Or(s.url, os.Getenv("REDIS_URL"), "redis://127.0.0.1:6379"))
	if err != nil {
		return nil, errURL
	}
	query := u.Query()
	further := query["addr"]
	sentinelUser, sentinelPassword := query.Get("sentinel_username"), query.Get("sentinel_password")
	for _, name := range []string{
		"addr", "sentinel_username", "sentinel_password", // read above
		"max_redirects", "read_only", "route_by_latency", "route_randomly", // A program's URL may have these.
	} {
		query.Del(name)
	}
	u.RawQuery = query.Encode()
	simple, err := redis.ParseURL(u.String())
	if err != nil {
		return nil, errURL
	}
	config, err := s.tls(simple.TLSConfig)
	if err != nil {
		return nil, err
	}
	options := &redis.UniversalOptions{
		Addrs:            append([]string{simple.Addr}, further...),
		ClientName:       simple.ClientName,
		DB:               simple.DB,
		Protocol:         simple.Protocol,
		Username:         simple.Username,
		Password:         simple.Password,
		SentinelUsername: sentinelUser,
		SentinelPassword: sentinelPassword,
		MasterName:       s.sentinel,
		TLSConfig:        config,
		// Reads and writes wait until ctx ends, and not for go-redis's three seconds.
		DialTimeout:  min(cmp.Or(simple.DialTimeout, 5*time.Second), s.timeout),
		ReadTimeout:  cmp.Or(simple.ReadTimeout, -1),
		WriteTimeout: cmp.Or(simple.WriteTimeout, -1),
	}
	options.Dialer = dialer(ctx, options)
	switch {
	case s.cluster:
		return redis.NewClusterClient(options.Cluster()), nil
	case s.sentinel != "":
		return redis.NewFailoverClient(options.Failover()), nil
	case len(further) > 0:
		return nil, fmt.Errorf("several addresses need -cluster or -sentinel; %w", errUsage)
	}
	return redis.NewClient(options.Simple()), nil
}

// tls returns how to encrypt, nil if the URL does not ask for that. Without -sni the server's certificate
// must have the URL's host, as in go-redis. Sentinels and their masters must each have their own.
func (s *server) tls(wanted *tls.Config) (*tls.Config, error) {
	if wanted == nil {
		if s.ca+s.cert+s.key+s.name != "" {
			return nil, fmt.Errorf("-cacert, -cert, -key and -sni need a URL with rediss://; %w", errUsage)
		}
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: s.name}
	if s.sentinel == "" {
		config.ServerName = cmp.Or(s.name, wanted.ServerName)
	}
	if s.ca != "" {
		pem, err := os.ReadFile(s.ca)
		if err != nil {
			return nil, fmt.Errorf("-cacert: %w; %w", err, errUsage)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("-cacert: %s has no certificate; %w", s.ca, errUsage)
		}
	}
	if s.cert != "" || s.key != "" {
		certificate, err := tls.LoadX509KeyPair(s.cert, cmp.Or(s.key, s.cert))
		if err != nil {
			return nil, fmt.Errorf("-cert and -key: %w; %w", err, errUsage)
		}
		config.Certificates = []tls.Certificate{certificate}
	}
	return config, nil
}

// dialer makes connections, to Sentinels too, that are closed when ctx ends.
func dialer(ctx context.Context, o *redis.UniversalOptions) func(_ context.Context, network, addr string) (net.Conn, error) {
	plain := &net.Dialer{Timeout: o.DialTimeout}
	dial := plain.DialContext
	if o.TLSConfig != nil {
		dial = (&tls.Dialer{NetDialer: plain, Config: o.TLSConfig}).DialContext
	}
	return func(_ context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err == nil {
			context.AfterFunc(ctx, func() { conn.Close() })
		}
		return conn, err
	}
}
