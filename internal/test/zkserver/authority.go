package zkserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Authority is a certificate authority for tests. It signs certificates for servers and clients.
type Authority struct {
	// CA is the PEM file with the authority's certificate.
	CA string

	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Certificate names the PEM files of a signed certificate.
type Certificate struct {
	// Chain contains both the certificate and the key, as a server needs them.
	Cert, Key, Chain string
}

// NewAuthority creates an authority that stores its files in dir.
func NewAuthority(dir, name string) (*Authority, error) {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour),
		IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	a := &Authority{CA: filepath.Join(dir, name+".pem"), dir: dir, cert: template, key: key}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	return a, os.WriteFile(a.CA, pemBlock("CERTIFICATE", der), 0o600)
}

// Issue signs a certificate for 127.0.0.1 and name that is valid until then. The files are named after name.
func (a *Authority) Issue(name string, until time.Time) (Certificate, error) {
	return a.IssueTo(pkix.Name{CommonName: name}, name, until)
}

// IssueTo is [Authority.Issue] with a subject.
func (a *Authority) IssueTo(subject pkix.Name, name string, until time.Time) (Certificate, error) {
	c := Certificate{
		Cert: filepath.Join(a.dir, name+".crt"), Key: filepath.Join(a.dir, name+".key"),
		Chain: filepath.Join(a.dir, name+".chain.pem"),
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return c, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: subject, NotBefore: time.Now().Add(-2 * time.Hour),
		NotAfter: until,
		DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return c, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return c, err
	}
	certPEM, keyPEM := pemBlock("CERTIFICATE", der), pemBlock("PRIVATE KEY", secret)
	for path, data := range map[string][]byte{c.Cert: certPEM, c.Key: keyPEM, c.Chain: append(certPEM, keyPEM...)} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			return c, err
		}
	}
	return c, nil
}

func pemBlock(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
