package sasl

import (
	"slices"
	"strings"
	"testing"

	"github.com/jcmturner/gokrb5/v8/gssapi"
	"github.com/jcmturner/gokrb5/v8/iana/keyusage"
	"github.com/jcmturner/gokrb5/v8/types"
)

// Only a server with the session key is believed, and only if it needs no layer that ZooKeeper's protocol does not
// have.
func TestServerMustKnowTheSessionKey(t *testing.T) {
	key := func(fill byte) types.EncryptionKey {
		return types.EncryptionKey{KeyType: 18, KeyValue: slices.Repeat([]byte{fill}, 32)}
	}
	offer := func(k types.EncryptionKey, usage uint32, flags byte, payload ...byte) []byte {
		w := gssapi.WrapToken{Flags: flags, EC: 12, SndSeqNum: 7, Payload: payload}
		if err := w.SetCheckSum(k, usage); err != nil {
			t.Fatal(err)
		}
		data, err := w.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	good := offer(key(1), keyusage.GSSAPI_ACCEPTOR_SEAL, fromAcceptor, 1, 0, 0, 0)
	rotated := slices.Concat(good[:6], []byte{0, 12}, good[8:16], good[len(good)-12:], good[16:len(good)-12])
	for name, c := range map[string]struct {
		token []byte
		want  string
	}{
		"right":       {good, ""},
		"rotated":     {rotated, ""},
		"more layers": {offer(key(1), keyusage.GSSAPI_ACCEPTOR_SEAL, fromAcceptor, 7, 0, 64, 0), ""},
		"another key": {offer(key(2), keyusage.GSSAPI_ACCEPTOR_SEAL, fromAcceptor, 1, 0, 0, 0),
			"has not proven that it has the key of zookeeper/zk1@X"},
		"reflected":     {offer(key(1), keyusage.GSSAPI_INITIATOR_SEAL, 0, 1, 0, 0, 0), "is not one of Kerberos"},
		"another usage": {offer(key(1), keyusage.GSSAPI_INITIATOR_SEAL, fromAcceptor, 1, 0, 0, 0), "has not proven"},
		"altered":       {slices.Concat(good[:16], []byte{5}, good[17:]), "has not proven"},
		"encrypted":     {offer(key(1), keyusage.GSSAPI_ACCEPTOR_SEAL, fromAcceptor|sealed, 1, 0, 0, 0), "flags"},
		"a layer": {offer(key(1), keyusage.GSSAPI_ACCEPTOR_SEAL, fromAcceptor, 6, 0, 64, 0),
			"demands a security layer"},
		"short offer": {offer(key(1), keyusage.GSSAPI_ACCEPTOR_SEAL, fromAcceptor, 1), "malformed"},
		"no checksum": {slices.Concat(good[:4], []byte{0, 0}, good[6:20]), "has not proven"},
		"header only": {slices.Concat(good[:4], []byte{0, 0, 0, 1}, good[8:16]), "has not proven"},
		"garbage":     {[]byte("rspauth=0"), "is not one of Kerberos"},
		"nothing":     {[]byte{}, "not set up for SASL"},
	} {
		x := &exchangeGSSAPI{step: 1, ticket: &ticket{key: key(1), service: "zookeeper/zk1@X"}}
		token, err := x.Step(c.token)
		switch {
		case c.want == "" && (err != nil || len(token) == 0):
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || token != nil):
			t.Errorf("%s: %v", name, err)
		}
		if _, err := x.Step([]byte{}); c.want == "" && (err != nil || !x.Done()) {
			t.Errorf("%s: not done: %v", name, err)
		}
	}
}

func TestServiceOfAServer(t *testing.T) {
	for server, want := range map[string]string{
		"ZK1.Example.org:2181":  "zookeeper/zk1.example.org",
		"zk1.example.org.:2181": "zookeeper/zk1.example.org", "[::1]:2181": "zookeeper/::1",
	} {
		if got := (Kerberos{}).service(server); got != want {
			t.Errorf("%s: %s", server, got)
		}
	}
	if got := (Kerberos{ServerPrincipal: "zk/_HOST@X"}).service("a:1"); got != "zk/a@X" {
		t.Error(got)
	}
}
