package zk

import (
	"crypto/x509"
	"fmt"
	"time"
)

// Certificate is the end of a certificate file: of the certificate in it that expires first.
type Certificate struct {
	File  string
	Begin time.Time
	End   time.Time
}

// Certificate returns the certificate with which this host authenticates; nil for none.
func (t TLS) Certificate() (*Certificate, error) {
	if !t.Enabled || t.Cert == "" {
		return nil, nil
	}
	config, err := t.config()
	if err != nil {
		return nil, err
	}
	var first *Certificate
	for _, der := range config.Certificates[0].Certificate {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, fmt.Errorf("zookeeper.tls.cert: %s: %w", t.Cert, err)
		}
		if first == nil || c.NotAfter.Before(first.End) {
			first = &Certificate{File: t.Cert, Begin: c.NotBefore, End: c.NotAfter}
		}
	}
	return first, nil
}

// maxExpiryNotice is how long before its end a certificate should have been renewed, unless a tenth of its life is
// shorter.
const maxExpiryNotice = 14 * 24 * time.Hour

// RenewBy returns when the certificate should have been renewed.
func (c Certificate) RenewBy() time.Time {
	return c.End.Add(-min(maxExpiryNotice, c.End.Sub(c.Begin)/10))
}

// Check returns an error if the certificate has expired, or soon does.
func (c Certificate) Check(now time.Time) error {
	state := "expires"
	switch {
	case now.Before(c.RenewBy()):
		return nil
	case !now.Before(c.End):
		state = "has expired"
	}
	return fmt.Errorf("zookeeper.tls.cert: %s %s at %s: replace it and its key, as after that no connection to "+
		"ZooKeeper can be opened", c.File, state, c.End.UTC().Format(time.RFC3339))
}
