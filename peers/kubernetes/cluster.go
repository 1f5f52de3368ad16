package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// A cluster is a control plane without nodes: etcd, kube-apiserver and kube-controller-manager on loopback,
// with a directory of their own.
type cluster struct {
	dir                   string
	etcd, server, manager *process
	config                *rest.Config
	client                *kubernetes.Clientset
	kubeconfig            string
	serverURL, managerURL string
	credentials           *credentials
	etcdURL, peerURL      string
	serverPort            string
	managerPort           string
}

// startCluster starts a control plane of the variant. Its logs are in dir, and stay there.
func startCluster(ctx context.Context, v variant, dir string) (*cluster, error) {
	c, err := startAPI(ctx, v, dir)
	if err != nil {
		return nil, err
	}
	if err := c.startManager(ctx, v); err != nil {
		c.stop()
		return nil, err
	}
	return c, nil
}

// startAPI starts a control plane without kube-controller-manager.
func startAPI(ctx context.Context, v variant, dir string) (_ *cluster, err error) {
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	c := &cluster{dir: mustAbs(dir)}
	defer func() {
		if err != nil {
			c.stop()
		}
	}()
	if c.credentials, err = newCredentials(c.dir); err != nil {
		return nil, err
	}
	ports, err := freePorts(4)
	if err != nil {
		return nil, err
	}
	c.etcdURL, c.peerURL = "http://127.0.0.1:"+ports[0], "http://127.0.0.1:"+ports[1]
	c.serverPort, c.managerPort = ports[2], ports[3]
	c.serverURL = "https://127.0.0.1:" + c.serverPort
	c.managerURL = "https://127.0.0.1:" + c.managerPort
	if err := c.startEtcd(ctx); err != nil {
		return nil, err
	}
	if err := c.connect(); err != nil {
		return nil, err
	}
	return c, c.startServer(ctx, v)
}

func (c *cluster) startEtcd(ctx context.Context) error {
	program, err := exec.LookPath("etcd")
	if err != nil {
		return fmt.Errorf("%w: tools/install-server.sh installs it", err)
	}
	c.etcd, err = startProcess(c.dir, "etcd", program, "--name=test", "--data-dir="+filepath.Join(c.dir, "etcd"),
		"--listen-client-urls="+c.etcdURL, "--advertise-client-urls="+c.etcdURL,
		"--listen-peer-urls="+c.peerURL, "--initial-advertise-peer-urls="+c.peerURL,
		"--initial-cluster=test="+c.peerURL,
		"--quota-backend-bytes=8589934592", "--log-level=warn")
	if err != nil {
		return err
	}
	return c.etcd.await(ctx, time.Minute, func(ctx context.Context) error {
		return answers(ctx, http.DefaultClient, c.etcdURL+"/health")
	})
}

func (c *cluster) startServer(ctx context.Context, v variant) (err error) {
	c.server, err = startProcess(c.dir, apiServer, v.binary(apiServer), "--etcd-servers="+c.etcdURL,
		"--bind-address=127.0.0.1", "--secure-port="+c.serverPort, "--service-cluster-ip-range=10.0.0.0/24",
		"--tls-cert-file="+c.credentials.certFile, "--tls-private-key-file="+c.credentials.keyFile,
		"--token-auth-file="+c.credentials.tokenFile, "--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+c.credentials.accountKeyFile, "--service-account-signing-key-file="+
			c.credentials.accountKeyFile,
		// The default limits protect a server from many clients. Here all load comes from one.
		"--max-requests-inflight=4000", "--max-mutating-requests-inflight=2000")
	if err != nil {
		return err
	}
	client, err := rest.HTTPClientFor(c.config)
	if err != nil {
		return err
	}
	return c.server.await(ctx, 3*time.Minute, func(ctx context.Context) error {
		return answers(ctx, client, c.serverURL+"/readyz")
	})
}

func (c *cluster) startManager(ctx context.Context, v variant) (err error) {
	c.manager, err = startProcess(c.dir, kubeManager, v.binary(kubeManager), "--kubeconfig="+c.kubeconfig,
		"--bind-address=127.0.0.1", "--secure-port="+c.managerPort, "--cert-dir="+c.dir,
		"--authorization-always-allow-paths=/healthz,/readyz,/metrics",
		"--service-account-private-key-file="+c.credentials.accountKeyFile, "--root-ca-file="+c.credentials.caFile,
		"--leader-elect=false",
		// With the default of 20 requests a second, a run measures the client's limiter and not the queues.
		"--kube-api-qps=5000", "--kube-api-burst=10000")
	if err != nil {
		return err
	}
	return c.manager.await(ctx, 3*time.Minute, func(ctx context.Context) error {
		return answers(ctx, insecure, c.managerURL+"/healthz")
	})
}

// connect writes the kubeconfig and makes a client that has no limit.
func (c *cluster) connect() (err error) {
	c.config = &rest.Config{
		Host: c.serverURL, BearerToken: c.credentials.token, QPS: -1, Timeout: 5 * time.Minute,
		WarningHandler:  rest.NoWarnings{},
		TLSClientConfig: rest.TLSClientConfig{CAData: c.credentials.ca},
	}
	c.kubeconfig = filepath.Join(c.dir, "kubeconfig")
	file := clientcmdapi.NewConfig()
	file.Clusters["test"] = &clientcmdapi.Cluster{Server: c.serverURL,
		CertificateAuthorityData: c.credentials.ca}
	file.AuthInfos["admin"] = &clientcmdapi.AuthInfo{Token: c.credentials.token}
	file.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "admin"}
	file.CurrentContext = "test"
	if err := clientcmd.WriteToFile(*file, c.kubeconfig); err != nil {
		return err
	}
	c.client, err = kubernetes.NewForConfig(c.config)
	return err
}

// stop ends the control plane, each part before those that it needs, and removes etcd's data. Calling it
// again is harmless.
func (c *cluster) stop() {
	for _, p := range []*process{c.manager, c.server, c.etcd} {
		if p != nil {
			p.stop()
		}
	}
	if err := os.RemoveAll(filepath.Join(c.dir, "etcd")); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// check returns an error if a part of the control plane has ended.
func (c *cluster) check() error {
	var errs []error
	for _, p := range []*process{c.etcd, c.server, c.manager} {
		select {
		case <-p.ended:
			errs = append(errs, fmt.Errorf("%s has ended (%v):\n%s", p.name, p.cmd.ProcessState, p.tail()))
		default:
		}
	}
	return errors.Join(errs...)
}
