package zk

import (
	"bytes"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"zkelectd/internal/cluster"
)

// Others who could read the keys of failsafe mode, write them, or put them there, may know them: 'acl --apply' replaces them, and only
// those.
func TestExposedFailsafeKeysAreReplaced(t *testing.T) {
	free, own := open(t, Options{}), Access{Auth: credentialsFile(t, "zkelectd:right"), ACL: ACLPrivate}
	member := open(t, Options{Access: own})
	both := open(t, Options{Access: Access{Auth: credentialsFile(t, "zkelectd:right\nzkelectd:former"), ACL: ACLPrivate}})
	for name, c := range map[string]struct {
		creator, planter *Session
		acl              []zk.ACL
		replaced         bool
	}{
		"an open tree":                          {free, free, zk.WorldACL(zk.PermAll), true},
		"an open tree, closed keys":             {free, free, member.createACL(""), true},
		"a closed tree":                         {member, member, member.createACL(""), false},
		"a tree of a user who is no longer one": {both, both, both.createACL(""), true},
	} {
		t.Run(name, func(t *testing.T) {
			p := root(t, c.creator)
			planted := cluster.FailsafeKeys{}.Rotated("mallory", time.Now())
			if _, err := c.planter.zk.Create(p.FailsafeKeys(), cluster.Encode(&planted), 0, c.acl); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				told := false
				if err := member.ApplyACLs(t.Context(), p, "ann@host", func(z ZnodeACL) { told = told || z.NewKeys }); err != nil {
					t.Fatal(err)
				}
				data, stat, err := member.Get(t.Context(), p.FailsafeKeys(), false)
				got := cluster.ReadStored[cluster.FailsafeKeys](p.FailsafeKeys(), data, stat, err == nil)
				if err != nil || !got.Readable() {
					t.Fatalf("%v, %v", err, got.Err)
				}
				kept := bytes.Equal(got.Record.Keys[0].Secret, planted.Keys[0].Secret)
				if kept == c.replaced || told != c.replaced || len(got.Record.Keys) != 1 {
					t.Errorf("kept: %v, told: %v: %d keys by %s", kept, told, len(got.Record.Keys), got.Record.By)
				}
				if read, change, err := member.Exposure(t.Context(), p.FailsafeKeys()); read || change || err != nil {
					t.Errorf("the keys are exposed: %v, %v, %v", read, change, err)
				}
				planted, c.replaced = got.Record, false // the second time there is nothing to do
			}
		})
	}
}
