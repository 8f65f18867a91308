package sasl

import (
	"strings"
	"testing"
)

// That the proofs are those of RFC 2831 is tested with real servers, in package zk.
func TestDigestProvesAndVerifies(t *testing.T) {
	for name, c := range map[string]struct{ challenge, want string }{
		"quoted":    {`realm="zk-sasl-md5",nonce="OA6MG9tEQGm2hh",qop="auth",charset=utf-8,algorithm=md5-sess`, ""},
		"no qop":    {`realm="zk-sasl-md5", nonce="OA6MG9tEQGm2hh", algorithm=md5-sess`, ""},
		"integrity": {`nonce="x",qop="auth-int",algorithm=md5-sess`, "quality of protection"},
		"no nonce":  {`realm="x",algorithm=md5-sess`, "not one of DIGEST-MD5"},
		"binary":    {"\x05\x04\xff", "malformed"},
		"unclosed":  {`nonce="x`, "malformed"},
		"escape":    {`nonce="x\`, "malformed"},
		"nothing":   {"", "not set up for SASL"},
	} {
		d := NewDigest(`u"ser`, "secret").(*digest)
		d.cnonce = "OA6MHXh6VqTrRk"
		if first, err := d.Step(nil); err != nil || first == nil || len(first) > 0 {
			t.Errorf("%s: first %q, %v", name, first, err)
		}
		answer, err := d.Step([]byte(c.challenge))
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) || d.Done() {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || !strings.Contains(string(answer),
			`username="u\"ser",realm="zk-sasl-md5",nonce="OA6MG9tEQGm2hh"`) {
			t.Errorf("%s: %s, %v", name, answer, err)
		}
		for _, proof := range []string{"", "rspauth=", "rspauth=00", `rspauth="` + strings.Repeat("0", 32) + `"`} {
			if _, err := d.Step([]byte(proof)); err == nil || d.Done() {
				t.Errorf("%s: accepts a server with the proof %q", name, proof)
			}
		}
		if _, err := d.Step([]byte("rspauth=" + d.proof)); err != nil || !d.Done() {
			t.Errorf("%s: %v", name, err)
		}
	}
}
