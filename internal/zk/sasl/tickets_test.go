package sasl

import (
	"context"
	"strings"
	"testing"
	"time"
)

// The tickets of servers that are gone are not renewed.
func TestKeepForgetsServersThatAreGone(t *testing.T) {
	k := Kerberos{Keytab: "/nowhere", Krb5Conf: "/nowhere"}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if _, err := k.NewExchange(ctx, "gone:2181"); err == nil || !strings.Contains(err.Error(), "/nowhere") {
		t.Fatal(err)
	}
	failures := make(chan error)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		k.Keep(ctx, func() []string { return []string{"here:2181"} }, func(err error, _ time.Time) { failures <- err })
	}()
	<-failures
	cancel()
	<-ended
	w := k.wallet()
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, wanted := w.services["zookeeper/here"]; !wanted || len(w.services) != 1 {
		t.Errorf("tickets are fetched for %v", w.services)
	}
}
