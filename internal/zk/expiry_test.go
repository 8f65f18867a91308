package zk

import (
	"testing"
	"time"
)

func TestCertificateThatExpires(t *testing.T) {
	tr := newTestCAs(t) // its certificates are two hours old
	for _, c := range []struct {
		lasts time.Duration
		want  string
	}{
		{time.Hour, ""},
		{10 * time.Minute, " expires at "},
		{-time.Minute, " has expired at "},
		{4000 * time.Hour, ""},
		{300 * time.Hour, ""}, // more than a tenth of its life
	} {
		own := tr.issue(tr.ca, "own", c.lasts) // replaces the last one
		cert, err := TLS{Enabled: true, Cert: own.Cert, Key: own.Key}.Certificate()
		if err != nil {
			t.Fatal(err)
		}
		err = cert.Check(time.Now())
		if c.want != "" {
			contains(t, err, own.Cert+c.want, cert.End.UTC().Format(time.RFC3339), "replace it and its key")
		} else if err != nil {
			t.Errorf("%s: %v", c.lasts, err)
		}
	}
	for name, none := range map[string]TLS{"no TLS": {Cert: "/no/cert"}, "no certificate": {Enabled: true}} {
		if cert, err := none.Certificate(); cert != nil || err != nil {
			t.Errorf("%s: %v, %v", name, cert, err)
		}
	}
	if _, err := (TLS{Enabled: true, Cert: "/no/cert", Key: "/no/key"}).Certificate(); err == nil {
		t.Error("a file that is not there has an end")
	}
	long := Certificate{Begin: time.Now().AddDate(-1, 0, 0), End: time.Now().Add(15 * 24 * time.Hour)}
	if err := long.Check(time.Now()); err != nil {
		t.Error(err)
	}
	if err := long.Check(time.Now().Add(25 * time.Hour)); err == nil {
		t.Error("two weeks before its end nothing is said")
	}
}
