package main

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
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
	flags.DurationVar(&s.timeout, "timeout", 10*time.Second,
		"gives up when the server has not answered for so long, or the scan of queues takes longer")
}

// errURL does not quote the URL, nor what the parsers say of it: a password that is not escaped shows up
// anywhere in these.
var errURL = fmt.Errorf("the URL of the server makes no sense: it should look like "+
	"redis://user:password@host:6379/0, with rediss:// for TLS or unix:///path?db=0, "+
	"special characters of the password as %%40 for @; %w", errUsage)

// open returns a client. Its calls end within the timeout.
func (s *server) open() (redis.UniversalClient, error) {
	u, err := url.Parse(cmp.Or(s.url, os.Getenv("REDIS_URL"), "redis://127.0.0.1:6379"))
	if err != nil {
		return nil, errURL
	}
	// ParseURL knows all but these. (The oldest go-redis that the module allows has no parser for Sentinel.)
	query := u.Query()
	options := &redis.UniversalOptions{
		Addrs:            query["addr"],
		SentinelUsername: query.Get("sentinel_username"),
		SentinelPassword: query.Get("sentinel_password"),
		MasterName:       s.sentinel,
		MaxRetries:       -1,
		DialTimeout:      s.timeout,
		ReadTimeout:      s.timeout,
		WriteTimeout:     s.timeout,
	}
	for _, name := range []string{"addr", "sentinel_username", "sentinel_password"} {
		query.Del(name)
	}
	u.RawQuery = query.Encode()
	simple, err := redis.ParseURL(u.String())
	switch {
	case err != nil:
		return nil, errURL
	case s.cluster && s.sentinel != "":
		return nil, fmt.Errorf("-cluster and -sentinel exclude each other; %w", errUsage)
	case len(options.Addrs) > 0 && !s.cluster && s.sentinel == "":
		return nil, fmt.Errorf("several addresses need -cluster or -sentinel; %w", errUsage)
	}
	options.Addrs = append([]string{simple.Addr}, options.Addrs...)
	options.DB, options.Protocol, options.ClientName = simple.DB, simple.Protocol, simple.ClientName
	options.Username, options.Password = simple.Username, simple.Password
	if options.TLSConfig, err = s.tls(simple.TLSConfig); err != nil {
		return nil, err
	}
	switch {
	case s.cluster:
		return redis.NewClusterClient(options.Cluster()), nil
	case s.sentinel != "":
		return redis.NewFailoverClient(options.Failover()), nil
	}
	return redis.NewClient(options.Simple()), nil
}

// tls adds the files to what the URL asks for: config, nil without encryption. The server's certificate must
// have the URL's host, as in go-redis. Sentinels and their masters must each have their own.
func (s *server) tls(config *tls.Config) (*tls.Config, error) {
	if config == nil {
		if s.ca+s.cert+s.key != "" {
			return nil, fmt.Errorf("-cacert, -cert and -key need a URL with rediss://; %w", errUsage)
		}
		return nil, nil
	}
	if s.sentinel != "" {
		config.ServerName = ""
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
	if s.cert+s.key != "" {
		certificate, err := tls.LoadX509KeyPair(s.cert, s.key)
		if err != nil {
			return nil, fmt.Errorf("-cert and -key: %w; %w", err, errUsage)
		}
		config.Certificates = []tls.Certificate{certificate}
	}
	return config, nil
}
