package httpapi

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	toolkit "github.com/prometheus/exporter-toolkit/web"
	"go.yaml.in/yaml/v3"

	"zkelectd/internal/secretfile"
)

// Web is a web configuration of Prometheus' exporter-toolkit, which reads it again for each connection and request. The zero
// value is none: plain HTTP.
type Web struct{ path string }

const webKey = "http.web_config"

// ReadWeb checks the file, and what it names.
func ReadWeb(path string) (Web, error) {
	w := Web{path}
	if path == "" {
		return w, nil
	}
	c, err := w.read()
	if err != nil {
		return w, err
	}
	if err := secretfile.CheckWritersOf(webKey, path); err != nil { // it says who may submit requests
		return w, err
	}
	if err := toolkit.Validate(path); err != nil {
		return w, fmt.Errorf("%s: %s: %w", webKey, path, err)
	}
	if verifies := strings.Contains(c.TLSConfig.ClientAuth, "Verify"); verifies || c.TLSConfig.ClientCAs != "" {
		if _, err := clientCAs(c); err != nil {
			return w, fmt.Errorf("%s: %s: %w", webKey, path, err)
		}
	}
	return w, nil
}

// read decodes the file. What is wrong with it is the toolkit's to say.
func (w Web) read() (toolkit.Config, error) {
	var c toolkit.Config
	data, err := secretfile.Read(webKey, w.path, 0)
	if err != nil {
		return c, err
	}
	if err := yaml.Unmarshal(data, &c); err != nil {
		return c, fmt.Errorf("%s: %s: %w", webKey, w.path, err)
	}
	c.TLSConfig.SetDirectory(filepath.Dir(w.path))
	return c, nil
}

// Secure tells that it has TLS.
func (w Web) Secure() bool {
	if w.path == "" {
		return false
	}
	c, err := w.read()
	return err == nil && c.TLSConfig.IsEnabled()
}

// pinned trusts the listener's own certificate and no other: whoever can read its file is on the same host.
func (w Web) pinned() (*tls.Config, error) {
	c, err := w.read()
	if err != nil {
		return nil, err
	}
	text := []byte(c.TLSConfig.TLSCert)
	if c.TLSConfig.TLSCertPath != "" {
		if text, err = secretfile.Read(webKey+": cert_file", c.TLSConfig.TLSCertPath, 0); err != nil {
			return nil, err
		}
	}
	own, _ := pem.Decode(text)
	if own == nil {
		return nil, fmt.Errorf("%s: %s: the certificate is no PEM", webKey, w.path)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		// Not by name and CA, which this host need not know, but below.
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			if !bytes.Equal(s.PeerCertificates[0].Raw, own.Bytes) {
				return fmt.Errorf("what answers has not the certificate of %s", w.path)
			}
			return nil
		},
	}, nil
}

// named tells that it has a user of that name, whose password the toolkit has checked.
func (w Web) named(user string) bool {
	if w.path == "" {
		return false
	}
	c, err := w.read()
	_, known := c.Users[user]
	return err == nil && known
}

// holder is whom a client's certificate is for. It is checked anew for each request, by the CAs of now: a connection may be
// older than the certificate's end or than its CA's, and the toolkit takes any public CA's where none is named.
func (w Web) holder(state *tls.ConnectionState) (string, error) {
	c, err := w.read()
	if err != nil {
		return "", err
	}
	roots, err := clientCAs(c)
	if err != nil {
		return "", err
	}
	leaf, between := state.PeerCertificates[0], x509.NewCertPool()
	for _, cert := range state.PeerCertificates[1:] {
		between.AddCert(cert)
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		return "", err
	}
	if c.TLSConfig.ClientAllowedSans != nil {
		if err := c.TLSConfig.VerifyPeerCertificate([][]byte{leaf.Raw}, nil); err != nil {
			return "", err
		}
	}
	if leaf.Subject.CommonName == "" {
		return "", errors.New("the certificate has no common name: nobody could tell who submitted the request")
	}
	return leaf.Subject.CommonName, nil
}

// clientCAs are those that sign the certificates of clients.
func clientCAs(c toolkit.Config) (*x509.CertPool, error) {
	text := []byte(c.TLSConfig.ClientCAsText)
	if c.TLSConfig.ClientCAs != "" {
		var err error
		if text, err = secretfile.Read("client_ca_file", c.TLSConfig.ClientCAs, 0); err != nil {
			return nil, err
		}
	}
	pool := x509.NewCertPool()
	switch {
	case len(text) == 0:
		return nil, fmt.Errorf("client_auth_type %s needs client_ca_file: without it any public CA's certificate would do", c.TLSConfig.ClientAuth)
	case !pool.AppendCertsFromPEM(text):
		return nil, errors.New("client_ca_file holds no certificate in PEM")
	}
	return pool, nil
}
