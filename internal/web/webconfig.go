package web

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

	"zkelectd/internal/sys/secretfile"
)

// Config is a web configuration file of Prometheus' exporter-toolkit, which reads it again for each connection and request.
// The zero value means no file: plain HTTP.
type Config struct{ path string }

const webConfigKey = "http.web_config"

// ReadConfig checks the file at path and the files that it names. An empty path returns the zero value.
func ReadConfig(path string) (Config, error) {
	w := Config{path}
	if path == "" {
		return w, nil
	}
	c, err := w.read()
	if err != nil {
		return w, err
	}
	if err := secretfile.CheckWritersOf(webConfigKey, path); err != nil { // it determines who may submit operator requests
		return w, err
	}
	if err := toolkit.Validate(path); err != nil {
		return w, fmt.Errorf("%s: %s: %w", webConfigKey, path, err)
	}
	if len(c.Users) > 0 {
		return w, fmt.Errorf("%s: %s: basic_auth_users: passwords are not supported; to restrict reading, demand certificates (client_auth_type: "+
			"RequireAndVerifyClientCert), or listen at a unix socket", webConfigKey, path)
	}
	if verifies := strings.Contains(c.TLSConfig.ClientAuth, "Verify"); verifies || c.TLSConfig.ClientCAs != "" {
		if _, err := clientCAs(c); err != nil {
			return w, fmt.Errorf("%s: %s: %w", webConfigKey, path, err)
		}
	}
	return w, nil
}

// read decodes the file. It does not validate it; the toolkit does.
func (w Config) read() (toolkit.Config, error) {
	var c toolkit.Config
	data, err := secretfile.Read(webConfigKey, w.path, 0)
	if err != nil {
		return c, err
	}
	if err := yaml.Unmarshal(data, &c); err != nil {
		return c, fmt.Errorf("%s: %s: %w", webConfigKey, w.path, err)
	}
	c.TLSConfig.SetDirectory(filepath.Dir(w.path))
	return c, nil
}

// TLSEnabled reports whether the configuration enables TLS.
func (w Config) TLSEnabled() bool {
	if w.path == "" {
		return false
	}
	c, err := w.read()
	return err == nil && c.TLSConfig.IsEnabled()
}

// pinnedTLSConfig returns a client configuration that trusts only the certificate in the web configuration. It is for clients on
// the same host, which can read that file.
func (w Config) pinnedTLSConfig() (*tls.Config, error) {
	c, err := w.read()
	if err != nil {
		return nil, err
	}
	text := []byte(c.TLSConfig.TLSCert)
	if c.TLSConfig.TLSCertPath != "" {
		if text, err = secretfile.Read(webConfigKey+": cert_file", c.TLSConfig.TLSCertPath, 0); err != nil {
			return nil, err
		}
	}
	own, _ := pem.Decode(text)
	if own == nil {
		return nil, fmt.Errorf("%s: %s: the certificate is not in PEM format", webConfigKey, w.path)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		// VerifyConnection compares the certificate itself. This host may not know its CA, and it may lack the name localhost.
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			if !bytes.Equal(s.PeerCertificates[0].Raw, own.Bytes) {
				return fmt.Errorf("the server's certificate is not the one in %s", w.path)
			}
			return nil
		},
	}, nil
}

// verifyClient verifies a client's certificate and returns its common name. It does so again for each operator request, with the
// current CAs: since the connection was made, the certificate may have expired or its CA may have been removed. Without
// client_ca_file the toolkit would accept certificates of any public CA.
func (w Config) verifyClient(state *tls.ConnectionState) (string, error) {
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
		return "", errors.New("the certificate has no common name, so the request could not be attributed to anyone")
	}
	return leaf.Subject.CommonName, nil
}

// clientCAs returns the CAs that sign the certificates of clients.
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
		return nil, fmt.Errorf("client_auth_type %s needs client_ca_file: without it, certificates of any public CA would be accepted", c.TLSConfig.ClientAuth)
	case !pool.AppendCertsFromPEM(text):
		return nil, errors.New("client_ca_file contains no PEM certificate")
	}
	return pool, nil
}
