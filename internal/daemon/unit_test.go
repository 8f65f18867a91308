package daemon

import (
	"strings"
	"testing"

	"zkelectd/internal/unit"
)

// A drop-in that ties the unit to something else than this daemon is refused before anything starts.
func TestUnitOfAnother(t *testing.T) {
	const permit = "/run/zkelectd/leader.env"
	u := unit.Unit{Name: "app.service", Permit: permit, BindsTo: []string{"zkelectd.service"}}
	for _, test := range []struct{ permit, service, says string }{
		{permit, "zkelectd.service", ""},
		{permit, "", ""}, // not a service: it has no permit then, but for tests
		{"", "zkelectd.service", "RuntimeDirectory="},
		{"/run/zkelectd-g2/leader.env", "zkelectd.service", "waits for the permit " + permit + ", and that of this zkelectd is /run/zkelectd-g2/leader.env"},
		{permit, "zkelectd@g2.service", "is bound to [zkelectd.service], and this zkelectd is zkelectd@g2.service"},
	} {
		err := ours(u, test.permit, test.service)
		if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%+v: %v", test, err)
		}
	}
}
