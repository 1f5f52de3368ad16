package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// credentials identify the parts of a control plane to each other. All files are in one directory.
type credentials struct {
	caFile, certFile, keyFile string // Of the API server.
	accountKeyFile            string // Signs the tokens of service accounts.
	tokenFile                 string // The API server's list of tokens.
	token                     string // The administrator's.
	ca                        []byte // The content of caFile.
}

// newCredentials makes the credentials of one control plane in dir.
func newCredentials(dir string) (*credentials, error) {
	c := &credentials{
		caFile: filepath.Join(dir, "ca.crt"), certFile: filepath.Join(dir, "server.crt"),
		keyFile:        filepath.Join(dir, "server.key"),
		accountKeyFile: filepath.Join(dir, "accounts.key"), tokenFile: filepath.Join(dir, "tokens.csv"),
		token: rand.Text(),
	}
	caKey, err := newKey("")
	if err != nil {
		return nil, err
	}
	serverKey, err := newKey(c.keyFile)
	if err != nil {
		return nil, err
	}
	if _, err := newKey(c.accountKeyFile); err != nil {
		return nil, err
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}
	server := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: apiServer},
		NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	if c.ca, err = writeCertificate(c.caFile, ca, ca, caKey, caKey); err != nil {
		return nil, err
	}
	if _, err := writeCertificate(c.certFile, server, ca, serverKey, caKey); err != nil {
		return nil, err
	}
	line := fmt.Sprintf("%s,admin,admin,system:masters\n", c.token)
	return c, os.WriteFile(c.tokenFile, []byte(line), 0o600)
}

// newKey returns a new private key, after writing it to file unless that is empty.
func newKey(file string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil || file == "" {
		return key, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

// writeCertificate writes a certificate of key, signed by parent's key, and returns it.
func writeCertificate(file string, cert, parent *x509.Certificate, key,
	parentKey *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, key.Public(), parentKey)
	if err != nil {
		return nil, err
	}
	data := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return data, os.WriteFile(file, data, 0o644)
}
